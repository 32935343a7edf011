"""Every setting once: its name, type, default, bounds and reason.

The tree is made of small frozen groups, so that a component is handed only what it uses. Values
come, weakest first, from the defaults, a TOML file, the environment (`NEVE_WAL_LINGER_MS` for
`wal.linger.ms`) and flags. An unknown name or a bad value is refused by name, wherever it stood.
docs/operations.md is compared with this file by a test.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from neve.errors import InvalidError

T = TypeVar("T")
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
VARIABLE_PREFIX = "NEVE_"


def setting(  # one call a setting reads like the table in docs/operations.md
    name: str,
    default: T,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Declare one setting as a dataclass field."""
    metadata = {"name": name, "doc": doc, "least": least, "most": most, "choices": choices}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


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
        "store.hedge.enabled", True, "send a second get or create when the first is slow"
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
    endpoint: str = setting(
        "store.endpoint", "", "address of an S3-compatible, GCS or Azure server; empty: the cloud's"
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


@dataclass(frozen=True, kw_only=True)
class WalSettings:
    """The write-ahead stream of one broker process."""

    linger_ms: int = setting(
        "wal.linger.ms",
        -1,
        "wait this long for more records before an object is cut; -1: 0 on memory and folders, "
        "100 where a PUT costs money",
        least=-1,
    )
    object_bytes: int = setting(
        "wal.object.bytes", 4 * MIB, "cut an object when it is this large", least=4 * KIB, most=GIB
    )
    inflight_max: int = setting(
        "wal.inflight.max", 8, "uploads of one stream at once", least=1, most=64
    )
    buffer_bytes: int = setting(
        "wal.buffer.bytes",
        64 * MIB,
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
        "WAL objects kept before a roll-up is written",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """Tiering: when and how committed records become segments."""

    bytes: int = setting(
        "segment.bytes",
        64 * MIB,
        "tier a partition when it has this many untiered bytes",
        least=1 * KIB,
        most=2 * GIB - 64 * MIB,
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
class CacheSettings:
    """What is kept near: the tail in memory, indexes in files."""

    tail_bytes: int = setting(
        "tail.cache.bytes", 256 * MIB, "committed records kept in memory for readers", least=0
    )
    index_bytes: int = setting("index.cache.bytes", GIB, "size of the index cache's files", least=0)
    index_folder: str = setting(
        "index.cache.folder", "", "where the index cache lives; empty: no files are kept"
    )
    index_memory_bytes: int = setting(
        "index.cache.memory.bytes",
        64 * MIB,
        "indexes kept in memory in front of the index cache's files; without a folder, "
        "index.cache.bytes counts instead",
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
        "prefetch.bytes", 128 * MIB, "bytes downloaded and not yet consumed", least=1
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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The whole tree."""

    store: StoreSettings = dataclasses.field(default_factory=StoreSettings)
    wal: WalSettings = dataclasses.field(default_factory=WalSettings)
    segment: SegmentSettings = dataclasses.field(default_factory=SegmentSettings)
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)
    prefetch: PrefetchSettings = dataclasses.field(default_factory=PrefetchSettings)
    reader: ReaderSettings = dataclasses.field(default_factory=ReaderSettings)


@dataclass(frozen=True)
class Declared:
    """One setting as declared: what docs, help and checks are made from."""

    name: str
    group: str
    field: str
    kind: type
    default: Any
    doc: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """The environment variable that gives it."""
        return VARIABLE_PREFIX + self.name.upper().replace(".", "_")


_GROUPS: dict[str, type[Any]] = {
    "store": StoreSettings,
    "wal": WalSettings,
    "segment": SegmentSettings,
    "cache": CacheSettings,
    "prefetch": PrefetchSettings,
    "reader": ReaderSettings,
}


def declared() -> dict[str, Declared]:
    """Every setting by its name, in the order of this file."""
    found: dict[str, Declared] = {}
    for group, cls in _GROUPS.items():
        for field in dataclasses.fields(cls):
            meta = field.metadata
            found[meta["name"]] = Declared(
                meta["name"],
                group,
                field.name,
                type(field.default),
                field.default,
                meta["doc"],
                meta["least"],
                meta["most"],
                meta["choices"],
            )
    return found


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """The settings from all sources. Every bad name or value is told with where it stood."""
    known = declared()
    values: dict[str, Any] = {}
    for source, given in (
        (str(file), _from_file(file) if file is not None else {}),
        ("environment", _from_environment(environment or {}, known)),
        ("flags", dict(flags or {})),
    ):
        for name, value in given.items():
            if name not in known:
                raise InvalidError(f"{source}: there is no setting {name!r}{_nearest(name, known)}")
            values[name] = _checked(known[name], value, source)
    groups: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
    for name, value in values.items():
        groups[known[name].group][known[name].field] = value
    return Settings(**{group: _GROUPS[group](**given) for group, given in groups.items()})


def _from_file(file: Path) -> dict[str, object]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{file}: is not TOML: {error}") from error
    rows = _flattened("", tree)
    given = dict(rows)
    if len(given) < len(rows):  # a quoted "wal.linger.ms" beside a nested one
        twice = next(name for name in given if sum(name == other for other, _ in rows) > 1)
        raise InvalidError(f"{file}: {twice} is given twice")
    return given


def _flattened(prefix: str, tree: dict[str, object]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        rows += _flattened(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return rows


def _from_environment(
    environment: Mapping[str, str], known: Mapping[str, Declared]
) -> dict[str, object]:
    names = {about.variable: name for name, about in known.items()}
    # An unknown variable is a typing mistake: it goes on under its own name, to be refused.
    return {
        names.get(variable, variable): value
        for variable, value in environment.items()
        if variable.startswith(VARIABLE_PREFIX)
    }


def _nearest(name: str, known: Mapping[str, Declared]) -> str:
    """A hint in the caller's own spelling: a variable for a variable, a name for a name."""
    is_variable = name.startswith(VARIABLE_PREFIX)
    spelled = [about.variable if is_variable else about.name for about in known.values()]
    close = difflib.get_close_matches(name, spelled, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _checked(about: Declared, value: object, source: str) -> object:
    def refuse(reason: str) -> InvalidError:
        return InvalidError(f"{source}: {about.name} = {value!r} {reason}")

    parsed = _parsed(about.kind, value)
    if parsed is None:
        raise refuse(f"is not {_KIND_NAMES[about.kind]}")
    if about.choices and parsed not in about.choices:
        raise refuse(f"is none of {', '.join(about.choices)}")
    if isinstance(parsed, int | float) and not isinstance(parsed, bool):
        if about.least is not None and parsed < about.least:
            raise refuse(f"is below the least, {about.least}")
        if about.most is not None and parsed > about.most:
            raise refuse(f"is above the most, {about.most}")
    return parsed


_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _parsed(kind: type, value: object) -> object | None:
    """The value as the setting's type, or None. Text is parsed; the rest must fit as it is."""
    if isinstance(value, str) and kind is not str:
        return _parsed_text(kind, value.strip())
    if isinstance(value, bool) and kind is not bool:
        return None
    if kind is float and isinstance(value, int | float):
        # No bound catches "nan", and nothing here is meant to be endless.
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, kind) else None


def _parsed_text(kind: type, text: str) -> object | None:
    if kind is bool:
        return _TRUTH.get(text.lower())
    try:
        return _parsed(kind, kind(text))
    except ValueError:
        return None
