"""The settings of serving reads: what consumers that lag may take up."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings.declare import KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class FetchSettings:
    """How a broker reads for its consumers what is no longer in memory."""

    catchup_bytes: int = setting(
        "fetch.catchup.bytes",
        48 * MIB,
        "bytes downloading, or read ahead and not consumed, for all consumers that lag; one larger "
        "piece passes alone",
        least=64 * KIB,
    )
    catchup_concurrency: int = setting(
        "fetch.catchup.concurrency",
        16,
        "reads of consumers that lag at once; others wait in their order",
        least=1,
        most=1024,
    )
    catchup_share: float = setting(
        "fetch.catchup.share",
        0.4,
        "share of one processor up to which consumers that lag are served while records are "
        "produced or read as they come; 0: no bound",
        least=0,
        most=64,
    )
    readahead_cursors: int = setting(
        "fetch.readahead.cursors",
        64,
        "consumers that are read ahead for; beyond it, the one that read longest ago starts anew",
        least=0,
        most=10_000,
    )
    readahead_idle_ms: int = setting(
        "fetch.readahead.idle.ms",
        10_000,
        "what was read ahead for a consumer is dropped when it has not come for so long",
        least=1,
    )
    readahead_part_bytes: int = setting(
        "fetch.readahead.part.bytes",
        4 * MIB,
        "size of one ranged get of a segment that is read ahead",
        least=4 * KIB,
        most=64 * MIB,
    )
    cold_wait_ms: int = setting(
        "fetch.cold.wait.ms",
        500,
        "a fetch that reads the store is answered after so long, or after its own longest wait, "
        "with what has come",
        least=1,
    )
    response_bytes_max: int = setting(
        "fetch.response.bytes.max",
        32 * MIB,
        "records in one answer, whatever a client asks for; one larger batch goes alone",
        least=64 * KIB,
        most=1024 * MIB,
    )
    unsent_bytes: int = setting(
        "fetch.unsent.bytes",
        32 * MIB,
        "answers that are made or being made and that clients have yet to take; past it, records "
        "wait for room, and clients that do not read lose their connection",
        least=64 * KIB,
    )
    search_bytes: int = setting(
        "fetch.search.bytes",
        16 * MIB,
        "batches held while offsets are searched by time; other searches wait, and one larger "
        "batch passes alone",
        least=1 * MIB,
    )
    waiting_bytes: int = setting(
        "fetch.waiting.bytes",
        8 * MIB,
        "fetches that wait, 1 KiB for each of their partitions; past it, one is answered at once "
        "with what there is",
        least=64 * KIB,
    )
    sessions_bytes: int = setting(
        "fetch.sessions.bytes",
        8 * MIB,
        "fetch sessions that are remembered, 600 bytes for each of their partitions",
        least=0,
    )
    session_partitions_max: int = setting(
        "fetch.session.partitions.max",
        10_000,
        "partitions of one fetch session; who wants more sends all of it each time",
        least=1,
    )
    sessions_max: int = setting(
        "fetch.sessions.max",
        1_000,
        "fetch sessions that are remembered; a client without one sends all it wants each time",
        least=0,
    )
    session_evict_ms: int = setting(
        "fetch.session.evict.ms",
        120_000,
        "a session unused for so long makes room for a new one when there are too many",
        least=0,
    )
