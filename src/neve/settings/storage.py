"""Settings of the store, the log, its caches, and of reading without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from neve.errors import InvalidError
from neve.settings.declare import GIB, KIB, MIB, setting
from neve.settings.wal_stores import parse_wal_stores


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Calls to the store: timeouts, retries, hedging and the endpoint."""

    concurrency_max: int = setting(
        "store.concurrency.max",
        64,
        "Maximum number of concurrent store calls. 0 means no limit.",
        minimum=0,
    )
    request_timeout_ms: int = setting(
        "store.request.timeout.ms", 30_000, "Timeout of one attempt of a store call.", minimum=1
    )
    connect_timeout_ms: int = setting(
        "store.connect.timeout.ms",
        5_000,
        "Timeout for opening a connection to the store.",
        minimum=1,
    )
    retry_attempts_max: int = setting(
        "store.retry.attempts.max",
        5,
        "Maximum number of retries of a store call after transient failures.",
        minimum=0,
    )
    retry_base_ms: int = setting(
        "store.retry.base.ms",
        100,
        "Pause before the first retry. It doubles with every further retry.",
        minimum=1,
    )
    retry_cap_ms: int = setting(
        "store.retry.cap.ms", 5_000, "Maximum pause between retries.", minimum=1
    )
    retry_jitter: float = setting(
        "store.retry.jitter",
        0.25,
        "Random share of each pause between retries.",
        minimum=0,
        maximum=1,
    )
    retry_budget_per_second: float = setting(
        "store.retry.budget.per.second",
        50.0,
        "Maximum number of retries per second, for all store calls together. Beyond it, a "
        "failure is returned without a retry.",
        minimum=0,
    )
    denied_grace_ms: int = setting(
        "store.denied.grace.ms",
        10_000,
        "How long calls are retried after the store rejects the credentials, because tokens "
        "rotate.",
        minimum=0,
    )
    hedge_enabled: bool = setting(
        "store.hedge.enabled",
        True,
        "Send a second get or create when the first is slow. Ignored for memory and local folders.",
    )
    hedge_floor_ms: int = setting(
        "store.hedge.floor.ms",
        20,
        "Minimum time before a hedge is sent, whatever latencies were measured.",
        minimum=0,
    )
    hedge_share_max: float = setting(
        "store.hedge.share.max",
        0.1,
        "Maximum share of gets and creates that are hedged.",
        minimum=0,
        maximum=1,
    )
    folder_fsync: bool = setting(
        "store.folder.fsync",
        True,
        "Sync files and folders of a local store to disk. If false, a power failure loses "
        "acknowledged records.",
    )
    slow_ms: int = setting(
        "store.slow.ms",
        5_000,
        "Log a warning when a store call takes longer, at most once per log.repeat.ms.",
        minimum=1,
    )
    get_delay_ms: int = setting(
        "store.get.delay.ms",
        0,
        "Delay added to every get, to try a local store with the latency of a remote one.",
        minimum=0,
        maximum=60_000,
    )
    endpoint: str = setting(
        "store.endpoint",
        "",
        "URL (http:// or https://) of an S3-compatible, GCS or Azure server. Empty: the cloud "
        "provider's endpoint.",
    )
    region: str = setting(
        "store.region", "", "Region of the bucket. Empty: taken from the environment."
    )
    path_style: bool = setting(
        "store.path.style",
        True,
        "With store.endpoint, put the bucket name into the URL's path instead of the host name.",
    )
    unsigned_payload: bool = setting(
        "store.unsigned.payload",
        True,
        "Do not hash request bodies when signing S3 requests. Neve has its own checksums.",
    )

    def __post_init__(self) -> None:
        check_endpoint("store.endpoint", self.endpoint)


def check_endpoint(name: str, text: str) -> None:
    """Raise InvalidError unless `text` is empty or a server's URL; `name` is the setting or option.

    The message does not repeat the text, which may contain credentials.
    """
    if not text:
        return
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or unbalanced brackets
        valid = False
    if not valid:
        raise InvalidError(
            f"{name} is not the URL of a server: use http://host:port or https://host:port"
        )


@dataclass(frozen=True, kw_only=True)
class WalSettings:
    """The WAL stream of one broker process."""

    store: str = setting(
        "wal.store",
        "",
        "Stores for the WAL, instead of the bucket: one URL, or `NAME=URL,NAME=URL` with a name for"
        " each, such as the rack. All brokers and readers need all of them. Empty: the bucket.",
    )
    own_store: str = setting(
        "wal.own.store",
        "",
        "Name of the store in wal.store that this broker writes to; `main` is the bucket. Empty: "
        "the store named as broker.rack, or the only one.",
    )
    linger_ms: int = setting(
        "wal.linger.ms",
        -1,
        "How long to wait for more records before a WAL object is closed and uploaded. -1: on "
        "object stores 100 ms; on memory and local folders, while other uploads are in progress"
        " and fewer than 128 KiB are buffered for each of them.",
        minimum=-1,
    )
    object_bytes: int = setting(
        "wal.object.bytes",
        4 * MIB,
        "Size at which a WAL object is closed and uploaded.",
        minimum=4 * KIB,
        maximum=GIB,
    )
    durability: str = setting(
        "wal.durability",
        "region",
        "`region`: acknowledged records must survive the loss of a zone. `zone`: they need not;"
        " required for an S3 Express bucket, which lives in one zone.",
        choices=("region", "zone"),
    )
    inflight_max: int = setting(
        "wal.inflight.max",
        8,
        "Maximum number of concurrent uploads of one WAL stream.",
        minimum=1,
        maximum=64,
    )
    buffer_bytes: int = setting(
        "wal.buffer.bytes",
        48 * MIB,
        "Maximum number of bytes that are appended but not committed. Beyond it, producers wait.",
        minimum=64 * KIB,
    )
    tail_bytes: int = setting(
        "wal.tail.bytes",
        256 * MIB,
        "Untiered bytes in plain WAL objects that trigger a roll-up.",
        minimum=1,
    )
    tail_objects: int = setting(
        "wal.tail.objects",
        512,
        "Number of WAL objects that triggers a roll-up. Up to eight times as many are kept "
        "while a roll-up would mostly rewrite old records.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        parse_wal_stores(self.store)

    @property
    def stores(self) -> dict[str, str]:
        """The URLs of the stores in wal.store, by name."""
        return parse_wal_stores(self.store)


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """Tiering: when committed records become segments, and their layout."""

    bytes: int = setting(
        "segment.bytes",
        64 * MIB,
        "Tier a partition when it has this many untiered bytes. A segment is always smaller "
        "than 2 GiB.",
        minimum=1 * KIB,
        maximum=GIB,
    )
    ms: int = setting(
        "segment.ms",
        3_600_000,
        "Tier a partition when its oldest untiered record reaches this age.",
        minimum=1,
    )
    index_interval: int = setting(
        "segment.index.interval",
        100,
        "Number of records between two entries of the offset index.",
        minimum=1,
    )
    checkpoint_numbers: int = setting(
        "manifest.checkpoint.numbers",
        64,
        "Number of manifest entries between two checkpoints.",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    """State of idempotent producers, which prevents that a retry is stored twice."""

    id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        86_400_000,
        "Forget an idempotent producer after this time without a batch.",
        minimum=1,
    )
    per_partition_max: int = setting(
        "producers.per.partition.max",
        10_000,
        "Maximum number of producers remembered per partition. The longest inactive are dropped"
        " first.",
        minimum=1,
    )
    memory_bytes: int = setting(
        "producers.memory.bytes",
        16 * MIB,
        "Memory for the producers of all partitions of a broker, 1 KiB each. The longest "
        "inactive without a batch in flight are dropped first.",
        minimum=64 * KIB,
    )


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Caches: recent records in memory, indexes in memory and on disk."""

    tail_bytes: int = setting(
        "tail.cache.bytes",
        88 * MIB,
        "Memory for recently committed records. It shrinks by what partitions, producers, "
        "groups, offsets, sessions and the entries of untiered slices use.",
        minimum=0,
    )
    index_bytes: int = setting(
        "index.cache.bytes", GIB, "Maximum size of the index cache on disk.", minimum=0
    )
    index_folder: str = setting(
        "index.cache.folder", "", "Folder of the index cache. Empty: no cache on disk."
    )
    index_memory_bytes: int = setting(
        "index.cache.memory.bytes",
        16 * MIB,
        "Memory for indexes, in front of the index cache on disk or without one.",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class PrefetchSettings:
    """Read-ahead for recovery and for readers that catch up."""

    window: int = setting(
        "prefetch.window",
        16,
        "Maximum number of objects downloaded but not yet consumed.",
        minimum=1,
        maximum=1024,
    )
    downloads: int = setting(
        "prefetch.downloads",
        8,
        "Maximum number of concurrent downloads. Must not exceed prefetch.window.",
        minimum=1,
        maximum=1024,
    )
    bytes: int = setting(
        "prefetch.bytes",
        128 * MIB,
        "Maximum number of bytes downloaded but not yet consumed. A reader of a local folder "
        "uses at most 12 MiB.",
        minimum=1,
    )
    retries: int = setting(
        "prefetch.retries", 5, "Maximum number of retries of one download.", minimum=0
    )
    retry_base_ms: int = setting(
        "prefetch.retry.base.ms", 100, "Pause before the first retry of a download.", minimum=1
    )
    retry_cap_ms: int = setting(
        "prefetch.retry.cap.ms", 5_000, "Maximum pause between retries of a download.", minimum=1
    )
    retry_jitter: float = setting(
        "prefetch.retry.jitter",
        0.25,
        "Random share of each pause between retries of a download.",
        minimum=0,
        maximum=1,
    )

    def __post_init__(self) -> None:
        if self.downloads > self.window:
            raise InvalidError(
                f"prefetch.downloads ({self.downloads}) exceeds prefetch.window "
                f"({self.window}): lower the former or raise the latter"
            )


@dataclass(frozen=True, kw_only=True)
class ReaderSettings:
    """Reading a bucket without a broker."""

    poll_ms: int = setting("reader.poll.ms", 500, "How often a follower polls the tail.", minimum=1)
    cluster_poll_ms: int = setting(
        "reader.cluster.poll.ms",
        5_000,
        "How often a follower polls the cluster log for new leaders. Once a stream is sealed, "
        "every poll of the tail does.",
        minimum=1,
    )
    partitions_ahead: int = setting(
        "reader.partitions.ahead",
        16,
        "Number of partitions that a reader resolves ahead of the one it reads.",
        minimum=1,
        maximum=1024,
    )
