"""The settings of the store, the log and its caches, and of reading without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from neve.errors import InvalidError
from neve.settings.declare import GIB, KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """How the bucket is spoken to."""

    concurrency_max: int = setting(
        "store.concurrency.max", 64, "store calls in flight at once; 0 turns the gate off", least=0
    )
    request_timeout_ms: int = setting(
        "store.request.timeout.ms", 30_000, "one attempt of one call may take this long", least=1
    )
    connect_timeout_ms: int = setting(
        "store.connect.timeout.ms", 5_000, "opening a connection may take this long", least=1
    )
    retry_attempts_max: int = setting(
        "store.retry.attempts.max", 5, "retries of one call that failed in a passing way", least=0
    )
    retry_base_ms: int = setting(
        "store.retry.base.ms",
        100,
        "the first pause between retries; each next one doubles",
        least=1,
    )
    retry_cap_ms: int = setting(
        "store.retry.cap.ms", 5_000, "no pause between retries is longer", least=1
    )
    retry_jitter: float = setting(
        "store.retry.jitter", 0.25, "share of a pause that is drawn by chance", least=0, most=1
    )
    retry_budget_per_second: float = setting(
        "store.retry.budget.per.second",
        50.0,
        "retries a second across all calls; beyond it, failures are told at once",
        least=0,
    )
    denied_grace_ms: int = setting(
        "store.denied.grace.ms",
        10_000,
        "how long a refusal of our credentials is retried, since tokens rotate",
        least=0,
    )
    hedge_enabled: bool = setting(
        "store.hedge.enabled",
        True,
        "send a second get or create when the first is slow (never in memory or a local folder)",
    )
    hedge_floor_ms: int = setting(
        "store.hedge.floor.ms", 20, "never hedge earlier than this, whatever was observed", least=0
    )
    hedge_share_max: float = setting(
        "store.hedge.share.max",
        0.1,
        "share of gets and creates that may be sent a second time",
        least=0,
        most=1,
    )
    folder_fsync: bool = setting(
        "store.folder.fsync",
        True,
        "sync files and folders of a local store; off, a power cut loses acknowledged records",
    )
    slow_ms: int = setting(
        "store.slow.ms",
        5_000,
        "a call that takes longer is logged as a warning, at most once in log.repeat.ms",
        least=1,
    )
    get_delay_ms: int = setting(
        "store.get.delay.ms",
        0,
        "added to every get, to see on a local store what a faraway one would be like",
        least=0,
        most=60_000,
    )
    endpoint: str = setting(
        "store.endpoint",
        "",
        "http:// or https:// address of an S3-compatible, GCS or Azure server; empty: the cloud's",
    )
    region: str = setting("store.region", "", "region of the bucket; empty: from the environment")
    path_style: bool = setting(
        "store.path.style",
        True,
        "put the bucket in the path, not in the host name, with an endpoint",
    )
    unsigned_payload: bool = setting(
        "store.unsigned.payload", True, "do not hash bodies when signing for S3; Neve has checksums"
    )

    def __post_init__(self) -> None:
        check_endpoint("store.endpoint", self.endpoint)


def check_endpoint(name: str, text: str) -> None:
    """InvalidError where this is not the address of a server; `name` is where it was given."""
    if not text:
        return
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or brackets that do not close
        valid = False
    if not valid:
        raise InvalidError(
            f"{name} is not the address of a server: write http://host:port or https://host:port"
        )


@dataclass(frozen=True, kw_only=True)
class WalSettings:
    """The write-ahead stream of one broker process."""

    linger_ms: int = setting(
        "wal.linger.ms",
        -1,
        "wait this long for more records before an object is cut; -1: on memory and folders for "
        "as long as uploads are under way or 128 KiB for each of them, 100 where a PUT costs money",
        least=-1,
    )
    object_bytes: int = setting(
        "wal.object.bytes", 4 * MIB, "cut an object when it is this large", least=4 * KIB, most=GIB
    )
    durability: str = setting(
        "wal.durability",
        "region",
        "what acknowledged records survive: the loss of a zone, or not; an S3 Express bucket lives "
        "in one zone and is refused unless this is `zone`",
        choices=("region", "zone"),
    )
    inflight_max: int = setting(
        "wal.inflight.max", 8, "uploads of one stream at once", least=1, most=64
    )
    buffer_bytes: int = setting(
        "wal.buffer.bytes",
        48 * MIB,
        "appended but uncommitted bytes; past it, producers wait",
        least=64 * KIB,
    )
    tail_bytes: int = setting(
        "wal.tail.bytes",
        256 * MIB,
        "untiered bytes kept as plain WAL objects before a roll-up is written",
        least=1,
    )
    tail_objects: int = setting(
        "wal.tail.objects",
        512,
        "WAL objects kept before a roll-up is written; up to eight times as many while that would "
        "write much more anew than has come",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """Tiering: when and how committed records become segments."""

    bytes: int = setting(
        "segment.bytes",
        64 * MIB,
        "tier a partition when it has this many untiered bytes; a segment has less than 2 GiB",
        least=1 * KIB,
        most=GIB,
    )
    ms: int = setting(
        "segment.ms",
        3_600_000,
        "tier a partition when its oldest untiered record is so old",
        least=1,
    )
    index_interval: int = setting(
        "segment.index.interval", 100, "records between two entries of the offset index", least=1
    )
    checkpoint_numbers: int = setting(
        "manifest.checkpoint.numbers",
        64,
        "manifest numbers between two checkpoints",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    """What a partition remembers of idempotent producers, so that a retry is not stored twice."""

    id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        86_400_000,
        "a producer that was silent for so long is forgotten",
        least=1,
    )
    per_partition_max: int = setting(
        "producers.per.partition.max",
        10_000,
        "producers that a partition remembers; the longest silent go first",
        least=1,
    )
    memory_bytes: int = setting(
        "producers.memory.bytes",
        16 * MIB,
        "producers that all partitions of a broker remember, 1 KiB for each of them; the longest "
        "silent go first, and none that has a batch on its way",
        least=64 * KIB,
    )


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """What is kept near: the tail in memory, indexes in files."""

    tail_bytes: int = setting(
        "tail.cache.bytes",
        88 * MIB,
        "committed records kept in memory for readers, less what partitions, producers, groups, "
        "offsets and sessions take up",
        least=0,
    )
    index_bytes: int = setting("index.cache.bytes", GIB, "size of the index cache's files", least=0)
    index_folder: str = setting(
        "index.cache.folder", "", "where the index cache lives; empty: no files are kept"
    )
    index_memory_bytes: int = setting(
        "index.cache.memory.bytes",
        16 * MIB,
        "indexes kept in memory, in front of the index cache's files or without any",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class PrefetchSettings:
    """Reading ahead, for recovery and for readers that catch up."""

    window: int = setting(
        "prefetch.window", 16, "objects downloaded and not yet consumed", least=1, most=1024
    )
    downloads: int = setting(
        "prefetch.downloads", 8, "downloads at once; never more than the window", least=1, most=1024
    )
    bytes: int = setting(
        "prefetch.bytes",
        128 * MIB,
        "bytes downloaded and not yet consumed; at most 12 MiB for a reader of a local bucket",
        least=1,
    )
    retries: int = setting("prefetch.retries", 5, "retries of one download", least=0)
    retry_base_ms: int = setting("prefetch.retry.base.ms", 100, "first pause", least=1)
    retry_cap_ms: int = setting("prefetch.retry.cap.ms", 5_000, "longest pause", least=1)
    retry_jitter: float = setting(
        "prefetch.retry.jitter", 0.25, "share of a pause drawn by chance", least=0, most=1
    )

    def __post_init__(self) -> None:
        if self.downloads > self.window:
            raise InvalidError(
                f"prefetch.downloads is {self.downloads}, more than prefetch.window "
                f"({self.window}): lower the one or raise the other"
            )


@dataclass(frozen=True, kw_only=True)
class ReaderSettings:
    """Reading a bucket without a broker."""

    poll_ms: int = setting(
        "reader.poll.ms", 500, "pause between two looks of a follower at the tail", least=1
    )
    cluster_poll_ms: int = setting(
        "reader.cluster.poll.ms",
        5_000,
        "how often a follower looks for new leaderships; at every look once a stream is sealed",
        least=1,
    )
    partitions_ahead: int = setting(
        "reader.partitions.ahead",
        16,
        "partitions that a reader of many looks up ahead of the one it reads",
        least=1,
        most=1024,
    )
