"""The options of a read: those of Spark's Kafka source, and where the bucket is.

Names are case-insensitive, as in Spark. Unknown names, invalid values and options that exclude each
other raise InvalidError. Settings of Neve (docs/operators/settings.md) are options too, under their
own names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from neve.bucket.async_bucket import LAYOUTS
from neve.bucket.model import EARLIEST, LATEST, OFFSET_MAX
from neve.errors import InvalidError
from neve.lake.scan.bounds import RowBounds
from neve.lake.scan.positions import (
    Position,
    offsets_position,
    partitions_by_topic,
    timestamp_position,
    timestamps_position,
)
from neve.lake.scan.task_planning import TASK_BYTES
from neve.lake.scan.tasks import StoreRef
from neve.settings import declared, load

READ_OPTIONS = (
    "store",
    "path",
    "layout",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "partitions",
    "fromOffset",
    "toOffset",
    "fromTimestamp",
    "toTimestamp",
    "pushFilters",
    "minPartitions",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
    "isolation.level",
)
"""Every option of a read, apart from Neve's settings."""

IGNORED_OPTIONS = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
"""Options of Spark's Kafka source for brokers and consumers, which this source does not use."""

KAFKA_PREFIX = "kafka."
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
STREAM_ONLY = ("maxOffsetsPerTrigger",)
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class Subscription:
    """The topics and partitions to read: names, a pattern for whole names, or an assignment."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def wants(self, topic: str) -> bool:
        """Return True if the subscription includes this topic."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names or topic in self.assigned


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a read. `starting` is None if no option sets it."""

    store: StoreRef
    subscription: Subscription
    starting: Position | None = None
    ending: Position = LATEST
    start_at_latest_if_newer: bool = False
    bounds: RowBounds = field(default_factory=RowBounds)
    push_filters: bool = False
    min_partitions: int = 0
    max_bytes_per_partition: int = TASK_BYTES
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    isolation_level: str = "read_uncommitted"

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """Parse the options that Spark passes."""
        given = _Given(options, READ_OPTIONS)
        refused = BATCH_ONLY if streaming else STREAM_ONLY
        for name in refused:
            if name in given.values:
                kind = "batch" if streaming else "streaming"
                raise InvalidError(f"the option {name} is for {kind} reads only: remove it")
        includes_headers(options)  # rejects a bad value also if the caller gave the schema
        strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        return cls(
            store=given.store(),
            subscription=_subscription(given),
            starting=_starting(given, streaming=streaming),
            ending=_ending(given),
            start_at_latest_if_newer=strategy == "latest",
            bounds=_bounds(given),
            push_filters=given.truth("pushFilters", default=False),
            min_partitions=given.number("minPartitions", least=1) or 0,
            max_bytes_per_partition=given.size("maxBytesPerPartition") or TASK_BYTES,
            max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", least=1),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            isolation_level=given.choice("isolation.level", ISOLATION_LEVELS),
        )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Return True if the option includeHeaders adds the column `headers`.

    Spark asks for the schema before it says whether the read is a batch or a stream, so this looks
    at one option only. Raises InvalidError unless it is true or false.
    """
    name = "includeHeaders"
    given = (text for option, text in options.items() if option.lower() == name.lower())
    return _truth(name, next(given, "false"))


def _subscription(given: _Given) -> Subscription:
    name, text = given.one_of(("subscribe", "subscribePattern", "assign"))
    if name == "assign":
        return Subscription(assigned=partitions_by_topic(name, text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidError(f"{name} = {text!r} is not a regular expression: {error}") from error
        return Subscription(pattern=text)
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidError("subscribe is empty: give topic names, separated by commas")
    return Subscription(names=names)


def _starting(given: _Given, *, streaming: bool) -> Position | None:
    """Return the first of the three options that is set, as Spark's Kafka source does."""
    if text := given.values.get("startingTimestamp"):
        return timestamp_position("startingTimestamp", text)
    if text := given.values.get("startingOffsetsByTimestamp"):
        return timestamps_position("startingOffsetsByTimestamp", text)
    if text := given.values.get("startingOffsets"):
        return offsets_position("startingOffsets", text, refused=None if streaming else LATEST)
    return None


def _ending(given: _Given) -> Position:
    if text := given.values.get("endingTimestamp"):
        return timestamp_position("endingTimestamp", text)
    if text := given.values.get("endingOffsetsByTimestamp"):
        return timestamps_position("endingOffsetsByTimestamp", text)
    if text := given.values.get("endingOffsets"):
        return offsets_position("endingOffsets", text, refused=EARLIEST)
    return LATEST


def _bounds(given: _Given) -> RowBounds:
    to_offset = given.number("toOffset", least=0)
    return RowBounds(
        partitions=given.numbers("partitions"),
        from_offset=given.number("fromOffset", least=0) or 0,
        to_offset=OFFSET_MAX if to_offset is None else to_offset,
        from_timestamp=given.number("fromTimestamp", least=0),
        to_timestamp=given.number("toTimestamp", least=0),
    )


class _Given:
    """The given options by their documented names, and Neve's settings."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        settings = {name.lower(): name for name in declared()}
        ignored = {name.lower() for name in IGNORED_OPTIONS}
        self.values: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        for option, text in options.items():
            name = option.lower().removeprefix(KAFKA_PREFIX)
            is_kafkas = option.lower().startswith(KAFKA_PREFIX)
            if name in names and (not is_kafkas or name == "isolation.level"):
                self.values[names[name]] = text
            elif name in settings and not is_kafkas:
                self.settings[settings[name]] = text
            elif not is_kafkas and name not in ignored:
                raise InvalidError(f"unknown option {option!r}{_nearest(name, names)}")

    def store(self) -> StoreRef:
        _, url = self.one_of(("store", "path"))
        layout = self.choice("layout", LAYOUTS)
        load(flags=self.settings)  # raises here for a bad value, not in every task
        return StoreRef(url, layout, tuple(sorted(self.settings.items())))

    def one_of(self, names: tuple[str, ...]) -> tuple[str, str]:
        found = [name for name in names if self.values.get(name)]
        if len(found) != 1:
            given = f"{' and '.join(found)} are given" if found else "none is given"
            raise InvalidError(f"give one of the options {', '.join(names)}: {given}")
        return found[0], self.values[found[0]]

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self.values.get(name, choices[0]).strip().lower()
        if text not in choices:
            raise InvalidError(f"{name} = {text!r} must be one of {', '.join(choices)}")
        return text

    def truth(self, name: str, *, default: bool) -> bool:
        return _truth(name, self.values.get(name, str(default)))

    def number(self, name: str, *, least: int) -> int | None:
        text = self.values.get(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < least:
            raise InvalidError(f"{name} = {text!r} must be an integer >= {least}")
        return int(text)

    def numbers(self, name: str) -> frozenset[int] | None:
        text = self.values.get(name)
        if text is None:
            return None
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise InvalidError(f"{name} = {text!r}: give numbers, separated by commas")
        return frozenset(int(part) for part in parts)

    def size(self, name: str) -> int | None:
        text = self.values.get(name)
        if text is None:
            return None
        found = _SIZE.fullmatch(text.strip())
        if found is None or int(found[1]) == 0:
            raise InvalidError(f"{name} = {text!r} is not a size: give bytes, or such as 64m")
        return int(found[1]) * _UNITS[found[2].lower()]


def _truth(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise InvalidError(f"{name} = {word!r} must be true or false")
    return word == "true"


def _nearest(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {known[close[0]]}?)" if close else ""
