"""Settings of fetches: catch-up reads, responses and fetch sessions."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings.declare import KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class FetchSettings:
    """Reads for consumers: from memory, and from the store for those that lag."""

    catchup_bytes: int = setting(
        "fetch.catchup.bytes",
        48 * MIB,
        "Memory for catch-up reads: bytes downloading, or read ahead and not consumed. A single"
        " larger block is read alone.",
        minimum=64 * KIB,
    )
    catchup_concurrency: int = setting(
        "fetch.catchup.concurrency",
        16,
        "Maximum number of concurrent catch-up reads. Others wait in order of arrival.",
        minimum=1,
        maximum=1024,
    )
    catchup_share: float = setting(
        "fetch.catchup.share",
        0.4,
        "Maximum share of one CPU for catch-up reads while live traffic is served. 0 means no "
        "limit.",
        minimum=0,
        maximum=64,
    )
    readahead_cursors: int = setting(
        "fetch.readahead.cursors",
        64,
        "Maximum number of consumers with read-ahead. Beyond it, the least recently active one "
        "loses its read-ahead.",
        minimum=0,
        maximum=10_000,
    )
    readahead_idle_ms: int = setting(
        "fetch.readahead.idle.ms",
        10_000,
        "Drop the read-ahead of a consumer that has not fetched for this time.",
        minimum=1,
    )
    readahead_part_bytes: int = setting(
        "fetch.readahead.part.bytes",
        4 * MIB,
        "Size of one ranged get of a segment during read-ahead.",
        minimum=4 * KIB,
        maximum=64 * MIB,
    )
    cold_wait_ms: int = setting(
        "fetch.cold.wait.ms",
        500,
        "Maximum time that a fetch waits for the store. The fetch's own max.wait.ms applies if "
        "it is longer. Then the response has what was read so far.",
        minimum=1,
    )
    response_bytes_max: int = setting(
        "fetch.response.bytes.max",
        32 * MIB,
        "Maximum size of the records in one fetch response, whatever the client requests. A "
        "single larger batch is sent alone.",
        minimum=64 * KIB,
        maximum=1024 * MIB,
    )
    unsent_bytes: int = setting(
        "fetch.unsent.bytes",
        32 * MIB,
        "Memory for responses that clients have not received yet. Beyond it, further records "
        "wait, and clients that do not read are disconnected.",
        minimum=64 * KIB,
    )
    search_bytes: int = setting(
        "fetch.search.bytes",
        16 * MIB,
        "Memory for batches during lookups of offsets by timestamp. Beyond it, lookups wait. A "
        "single larger batch is read alone.",
        minimum=1 * MIB,
    )
    waiting_bytes: int = setting(
        "fetch.waiting.bytes",
        8 * MIB,
        "Memory for fetches that wait for records, 1 KiB per partition. Beyond it, a fetch is "
        "answered immediately.",
        minimum=64 * KIB,
    )
    sessions_bytes: int = setting(
        "fetch.sessions.bytes",
        8 * MIB,
        "Memory for fetch sessions, 600 bytes per partition.",
        minimum=0,
    )
    session_partitions_max: int = setting(
        "fetch.session.partitions.max",
        10_000,
        "Maximum number of partitions in one fetch session. Clients with more send full fetch "
        "requests.",
        minimum=1,
    )
    sessions_max: int = setting(
        "fetch.sessions.max",
        1_000,
        "Maximum number of fetch sessions. Clients without a session send full fetch requests.",
        minimum=0,
    )
    session_evict_ms: int = setting(
        "fetch.session.evict.ms",
        120_000,
        "When the maximum is reached, a new session replaces one that was unused for this time.",
        minimum=0,
    )
