"""Every topic config that Neve knows: its type, default, bounds, and whether it has an effect.

Kafka's tools set many configs for disks and replicas, which Neve does not have. Neve checks, stores
and shows those, but they have no effect; all others are enforced. A name that is not declared here,
or a value that Neve cannot honour, is refused before anything is written. A test compares
docs/users/topics.md with these declarations.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from neve.errors import InvalidError
from neve.records import compression
from neve.settings import KIB, SegmentSettings

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
# A lower segment.bytes counts as this: smaller segments would be mostly header and index.
SEGMENT_BYTES_MIN = KIB


class InvalidConfigError(InvalidError):
    """A topic config that does not exist, or a value that it cannot have."""


@dataclass(frozen=True, kw_only=True)
class ConfigDefinition:
    """One config. `kind` is Kafka's name of its type.

    `refused` maps values that Kafka accepts, and Neve does not, to the reason. `effective` is False
    if the config is stored but has no effect. `default` is None if the default is the broker's
    setting of the same name.
    """

    name: str
    kind: str
    default: str | None
    doc: str
    effective: bool
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def check(self, text: str) -> None:
        """Raise InvalidConfigError if the text is not a valid value."""
        value = self._parsed(text)
        if value is None:
            raise self._error(text, f"must be {_KIND_NAMES[self.kind]}")
        for given in value if isinstance(value, list) else [text]:
            if given in self.refused:
                raise self._error(text, self.refused[given])
            if self.choices and given not in self.choices:
                raise self._error(text, f"must be one of {', '.join(self.choices)}")
        if isinstance(value, list) and self.choices and not value:
            raise self._error(text, f"is empty; must be one of {', '.join(self.choices)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise self._error(text, f"must be >= {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise self._error(text, f"must be <= {self.maximum}")

    def _error(self, text: str, reason: str) -> InvalidConfigError:
        return InvalidConfigError(f"{self.name} = {text!r} {reason}")

    def _parsed(self, text: str) -> int | float | bool | str | list[str] | None:
        if self.kind == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if self.kind == "list":
            return [part.strip() for part in text.split(",")] if text.strip() else []
        if self.kind == "string":
            return text
        if "_" in text:  # Python parses 1_000 as a number; Kafka's tools do not
            return None
        try:
            number = float(text) if self.kind == "double" else int(text)
        except ValueError:
            return None
        return number if math.isfinite(number) else None


_KIND_NAMES = {
    "boolean": "true or false",
    "int": "an integer",
    "long": "an integer",
    "double": "a number",
}
_NOT_YET = "is not supported yet: topics are kept by time and size only (cleanup.policy=delete)"
_AS_PRODUCED = "producer"
_CODECS = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
_LEVELS = "each codec compresses at its library's usual level"


def _config(
    name: str, kind: str, default: str | int | None, doc: str, **more: object
) -> ConfigDefinition:
    bounds: dict[str, object] = {}
    if kind in ("int", "long"):
        bounds = {"minimum": 0, "maximum": INT_MAX if kind == "int" else LONG_MAX}
    text = None if default is None else str(default)
    about = {"effective": True, **bounds, **more}
    return ConfigDefinition(name=name, kind=kind, default=text, doc=doc, **about)  # type: ignore[arg-type]


def _kept(name: str, kind: str, default: str | int, doc: str, **more: object) -> ConfigDefinition:
    return _config(name, kind, default, doc, **{"effective": False, **more})


_DECLARED = (
    _config(
        "cleanup.policy",
        "list",
        "delete",
        "what happens to old records; compaction is not supported yet",
        choices=("delete",),
        refused={"compact": _NOT_YET},
    ),
    _config(
        "retention.ms",
        "long",
        7 * 24 * HOUR_MS,
        "records older than this are deleted; -1: never",
        minimum=-1,
    ),
    _config(
        "retention.bytes",
        "long",
        -1,
        "the oldest segments of a partition are deleted while it is larger than this; -1: never",
        minimum=-1,
    ),
    _config(
        "segment.bytes",
        "int",
        None,
        "a partition is tiered when this many bytes wait; never more than the broker's "
        "segment.bytes at a time; less than 1024 counts as 1024",
        minimum=14,
    ),
    _config(
        "segment.ms",
        "long",
        None,
        "a partition is tiered when its oldest untiered record has waited this long",
        minimum=1,
    ),
    _config(
        "max.message.bytes",
        "int",
        1_048_588,
        "the largest batch that a producer may send, as sent and as stored",
    ),
    _config(
        "message.timestamp.type",
        "string",
        CREATE_TIME,
        "whether records carry the producer's time or the time of the append",
        choices=(CREATE_TIME, LOG_APPEND_TIME),
    ),
    _config(
        "message.timestamp.difference.max.ms",
        "long",
        LONG_MAX,
        "how far a producer's time may be from the broker's, in each direction for which the "
        "config below is not given",
    ),
    _config(
        "message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "how far a producer's time may be before the broker's",
    ),
    _config(
        "message.timestamp.after.max.ms",
        "long",
        LONG_MAX,
        "how far a producer's time may be after the broker's",
    ),
    _config(
        "compression.type",
        "string",
        _AS_PRODUCED,
        "the codec of every batch in the log; `producer` keeps what each producer chose, anything "
        "else recompresses batches that come in another codec",
        choices=(_AS_PRODUCED, *_CODECS),
    ),
    _kept(
        "min.insync.replicas",
        "int",
        1,
        "the store replicates: a record is acknowledged when the store has it",
        minimum=1,
    ),
    _kept("compression.gzip.level", "int", -1, _LEVELS, minimum=-1, maximum=9),
    _kept("compression.lz4.level", "int", 9, _LEVELS, minimum=1, maximum=17),
    _kept("compression.zstd.level", "int", 3, _LEVELS, minimum=-131_072, maximum=22),
    _kept("delete.retention.ms", "long", 24 * HOUR_MS, "concerns compaction"),
    _kept(
        "min.cleanable.dirty.ratio", "double", "0.5", "concerns compaction", minimum=0, maximum=1
    ),
    _kept("min.compaction.lag.ms", "long", 0, "concerns compaction"),
    _kept("max.compaction.lag.ms", "long", LONG_MAX, "concerns compaction", minimum=1),
    _kept(
        "file.delete.delay.ms",
        "long",
        60_000,
        "maintenance.interval.ms and maintenance.gc.interval.ms decide when objects are deleted",
    ),
    _kept("flush.messages", "long", LONG_MAX, "what is acknowledged is durable", minimum=1),
    _kept("flush.ms", "long", LONG_MAX, "what is acknowledged is durable"),
    _kept("index.interval.bytes", "int", 4096, "segment.index.interval counts records instead"),
    _kept(
        "segment.index.bytes", "int", 10 * KIB * KIB, "indexes have the size they need", minimum=4
    ),
    _kept("segment.jitter.ms", "long", 0, "segments are not rolled all at once"),
    _kept("preallocate", "boolean", "false", "there are no files to preallocate"),
    _kept(
        "unclean.leader.election.enable",
        "boolean",
        "false",
        "a new leader always reads everything that was acknowledged",
    ),
    _kept("leader.replication.throttled.replicas", "list", "", "brokers copy nothing"),
    _kept("follower.replication.throttled.replicas", "list", "", "brokers copy nothing"),
    _kept("remote.storage.enable", "boolean", "false", "everything is in the bucket anyway"),
    _kept("remote.log.copy.disable", "boolean", "false", "everything is in the bucket anyway"),
    _kept("remote.log.delete.on.disable", "boolean", "false", "everything is in the bucket anyway"),
    _kept("local.retention.ms", "long", -2, "nothing is kept on local disks", minimum=-2),
    _kept("local.retention.bytes", "long", -2, "nothing is kept on local disks", minimum=-2),
    _kept("message.downconversion.enable", "boolean", "true", "old formats are not served"),
    _kept("message.format.version", "string", "3.0-IV1", "there is one format"),
)

CONFIGS: Mapping[str, ConfigDefinition] = MappingProxyType({row.name: row for row in _DECLARED})


def check_configs(values: Mapping[str, str]) -> None:
    """Raise InvalidConfigError for the first unknown name or invalid value."""
    for name, text in values.items():
        known_config(name).check(text)


def known_config(name: str) -> ConfigDefinition:
    """Return the config of this name. Raises InvalidConfigError if it does not exist."""
    about = CONFIGS.get(name)
    if about is None:
        close = difflib.get_close_matches(name, CONFIGS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InvalidConfigError(f"there is no topic config {name!r}{hint}")
    return about


def default_text(
    about: ConfigDefinition, segment: SegmentSettings, changed: Mapping[str, str] | None = None
) -> str:
    """Return the default: as `changed` by a broker config, as declared, or from a setting."""
    if changed and about.name in changed:
        return changed[about.name]
    if about.default is not None:
        return about.default
    return str({"segment.bytes": segment.bytes, "segment.ms": segment.ms}[about.name])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's effective configs, typed."""

    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    timestamp_type: str
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    codec: int | None
    """The codec in which every batch is stored; None keeps the producer's."""

    @property
    def log_append_time(self) -> bool:
        return self.timestamp_type == LOG_APPEND_TIME

    @classmethod
    def of(
        cls,
        configs: Mapping[str, str],
        segment: SegmentSettings,
        defaults: Mapping[str, str] | None = None,
    ) -> TopicConfig:
        """Return the effective configs of a topic with these stored configs.

        Raises InvalidConfigError if another version stored an invalid value. `defaults` are those
        that brokers' configs have changed, by the names of topic configs.
        """

        def text(name: str) -> str:
            about = CONFIGS[name]
            if name not in configs:
                return default_text(about, segment, defaults)
            about.check(configs[name])
            return configs[name]

        difference = int(text("message.timestamp.difference.max.ms"))
        before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
        # Segments are built in memory, so the broker's bound holds whatever the topic config says.
        bytes_ = min(max(int(text("segment.bytes")), SEGMENT_BYTES_MIN), segment.bytes)
        return cls(
            retention_ms=int(text("retention.ms")),
            retention_bytes=int(text("retention.bytes")),
            segment_bytes=bytes_,
            segment_ms=int(text("segment.ms")),
            max_message_bytes=int(text("max.message.bytes")),
            timestamp_type=text("message.timestamp.type"),
            timestamp_before_max_ms=int(text(before)) if before in configs else difference,
            timestamp_after_max_ms=int(text(after)) if after in configs else difference,
            codec=_CODECS.get(text("compression.type")),
        )
