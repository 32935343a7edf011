"""The types of the reader's API: topics, records, selections, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from neve import runtime
from neve.errors import (
    DamagedError,
    InvalidError,
    LostRangeError,
    NeveError,
    NotFoundError,
    UnsupportedError,
)
from neve.log.reading.spans import TimeWindow
from neve.log.wal.stores import WalStoreUnavailableError

OFFSET_MAX = 2**63 - 1

PARTITION_ERRORS = (
    DamagedError,
    InvalidError,
    LostRangeError,
    NotFoundError,
    UnsupportedError,
    WalStoreUnavailableError,
)
"""Errors that concern one partition: the other partitions are read before the error is raised.

All other errors are raised at once.
"""

EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"
Edge: TypeAlias = Literal["earliest", "latest"]
Offsets: TypeAlias = int | Edge | Mapping[int, int] | None
"""One offset for every partition, an offset by partition, an edge of the log, or no bound."""
Moment: TypeAlias = int | datetime
"""Milliseconds since 1970, or a date and time with its zone."""


class Record(NamedTuple):
    """One committed record.

    `timestamp` is in milliseconds since 1970; `timestamp_type` is 0 for the producer's time and 1
    for the time of the append. Header keys are text, or raw bytes where they are not UTF-8.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | bytes, bytes | None], ...] = ()


class TopicInfo(NamedTuple):
    """A topic. `id` is empty if the layout has no topic ids."""

    name: str
    id: str
    partitions: tuple[int, ...]


class PartitionName(NamedTuple):
    """A partition's topic name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionsFailedError(NeveError):
    """Several partitions could not be read; all others were. `failures` has each one's error."""

    def __init__(self, failures: Mapping[PartitionName, NeveError]) -> None:
        errors = "; ".join(f"{name}: {error}" for name, error in failures.items())
        super().__init__(f"{len(failures)} partitions could not be read to their end: {errors}")
        self.failures = dict(failures)


class TopicReplacedError(NeveError):
    """A topic was deleted and another one with its name created, so offsets have no meaning."""

    def __init__(self, topic: str, wanted_id: str, found_id: str) -> None:
        super().__init__(
            f"topic {topic!r} with the id {wanted_id} was deleted, and another one of that name "
            f"has the id {found_id}: start again with that topic"
        )
        self.topic = topic
        self.wanted_id = wanted_id
        self.found_id = found_id


def raise_failures(failures: Mapping[PartitionName, NeveError]) -> None:
    """Raise the failure if there is one, or PartitionsFailedError if there are several."""
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise PartitionsFailedError(failures)


@dataclass(frozen=True)
class Selection:
    """The records of one partition to read. `from_` bounds are inclusive, `to_` bounds are not.

    Timestamps are milliseconds since 1970.
    """

    from_offset: int | Edge = EARLIEST
    to_offset: int = OFFSET_MAX
    from_timestamp: int | None = None
    to_timestamp: int | None = None

    @property
    def times(self) -> TimeWindow:
        return TimeWindow(self.from_timestamp, self.to_timestamp)

    @property
    def by_time(self) -> bool:
        return self.from_timestamp is not None or self.to_timestamp is not None

    def includes(self, timestamp: int) -> bool:
        """Return whether the time bounds include a record with this timestamp."""
        after = self.from_timestamp is None or timestamp >= self.from_timestamp
        return after and (self.to_timestamp is None or timestamp < self.to_timestamp)


@dataclass(frozen=True)
class Bounds:
    """The bounds that a caller gives for any number of partitions."""

    from_offset: Offsets = None
    to_offset: int | Mapping[int, int] | None = None
    from_timestamp: Moment | None = None
    to_timestamp: Moment | None = None

    def of(self, partition: int) -> Selection:
        """Return the selection of one partition, which has no bound if a mapping leaves it out."""
        to_offset = _offset(self.to_offset, partition)
        return Selection(
            _first(self.from_offset, partition),
            OFFSET_MAX if to_offset is None else to_offset,
            milliseconds(self.from_timestamp),
            milliseconds(self.to_timestamp),
        )


def _first(given: Offsets, partition: int) -> int | Edge:
    if isinstance(given, str):
        if given not in (EARLIEST, LATEST):
            raise InvalidError(
                f"invalid offset {given!r}: must be an integer >= 0, 'earliest' or 'latest'"
            )
        return given
    found = _offset(given, partition)
    return EARLIEST if found is None else found


def _offset(given: int | Mapping[int, int] | None, partition: int) -> int | None:
    found = given.get(partition) if isinstance(given, Mapping) else given
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise InvalidError(f"invalid offset {found!r}: must be an integer >= 0")
    return found


def milliseconds(moment: Moment | None) -> int | None:
    """Return a moment in milliseconds since 1970, as in records; a datetime is rounded up.

    Raises InvalidError for a datetime without a time zone.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidError(f"{moment.isoformat()} has no time zone: add one, such as UTC")
        return runtime.ms_from_wall(moment)
    if moment is not None and (not isinstance(moment, int) or isinstance(moment, bool)):
        raise InvalidError(
            f"invalid time {moment!r}: must be milliseconds since 1970 or a datetime"
        )
    return moment
