"""What a manifest's numbers and runs hold: changes to the list of one partition's segments.

A number holds one or more changes that take effect together. Every change is complete in itself:
folding it needs no other object, so a checkpoint is a function of the numbers below it.
"""

from __future__ import annotations

from typing import TypeAlias

from neve.log.envelope import Stored
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX
from neve.log.segment.kfs import SEGMENT_BYTES_MAX

NO_CRC = -1
"""The `crc` of an imported segment whose checksum is not known."""


class Segment(Stored, frozen=True, kw_only=True):
    """A segment as the manifest lists it: where it is, and enough to plan reads without a request.

    `index_key` is absent only for imported segments that have none. `owned` is false for objects
    that were imported in place and are not Neve's to delete.
    """

    key: str
    base: int
    last: int
    bytes: int
    records: int
    min_timestamp: int
    max_timestamp: int
    created_ms: int
    epoch: int
    crc: int
    index_key: str | None = None
    index_bytes: int = 0
    owned: bool = True

    @property
    def bytes_max(self) -> int:
        """What its object may have: an imported one may have been written over since."""
        return self.bytes if self.owned else SEGMENT_BYTES_MAX

    @property
    def index_bytes_max(self) -> int:
        """What its bundle may have."""
        return self.index_bytes if self.owned else FOREIGN_INDEX_BYTES_MAX


class Removal(Stored, frozen=True, kw_only=True):
    """A segment taken off the list, with all that folding needs to doom its objects."""

    key: str
    base: int
    last: int
    index_key: str | None = None
    index_bytes: int = 0
    owned: bool = True


class Run(Stored, frozen=True, kw_only=True):
    """An immutable object that lists up to RUN_SEGMENTS_MAX segments in order."""

    key: str
    base: int
    last: int
    segments: int
    bytes: int
    min_timestamp: int
    max_timestamp: int


class RunBody(Stored, frozen=True):
    """The payload of a run's object."""

    segments: tuple[Segment, ...]


class Add(Stored, frozen=True, tag="add"):
    """Tiering: segments that continue the log where the listed ones end."""

    segments: tuple[Segment, ...]


class Replace(Stored, frozen=True, tag="replace"):
    """Merging: other segments for the same offsets. What is removed is doomed."""

    removed: tuple[Removal, ...]
    added: tuple[Segment, ...]


class Reindex(Stored, frozen=True, tag="reindex"):
    """A segment's bundle, lost or damaged, was rebuilt under a new key. The old one is doomed.

    `old_index_key` is left out where the old one was imported and is not Neve's to delete.
    """

    key: str
    base: int
    old_index_key: str | None
    index_key: str
    index_bytes: int


class Start(Stored, frozen=True, tag="start"):
    """The log starts at a higher offset: retention or DeleteRecords. What is removed is doomed."""

    offset: int
    removed: tuple[Removal, ...] = ()


class Doom(Stored, frozen=True, tag="doom"):
    """Objects that no committer may list any more, so that they can be deleted."""

    keys: tuple[str, ...]


class Collected(Stored, frozen=True, tag="collected"):
    """Doomed objects that were deleted: the collector need not delete them again."""

    keys: tuple[str, ...]


class Runs(Stored, frozen=True, tag="runs"):
    """Segments move into runs, or from runs into others. A replaced run's object is doomed."""

    added: tuple[Run, ...]
    replaced: tuple[str, ...] = ()


class Skip(Stored, frozen=True, tag="skip"):
    """Offsets given up for lost on purpose, so that readers get past damage. Never forgotten."""

    first: int
    last: int
    at_ms: int
    reason: str


Change: TypeAlias = Add | Replace | Reindex | Start | Doom | Collected | Runs | Skip


class Record(Stored, frozen=True):
    """The payload of one manifest number."""

    changes: tuple[Change, ...]


def removal(segment: Segment) -> Removal:
    """What folding needs to know of a segment that is taken off the list."""
    return Removal(
        key=segment.key,
        base=segment.base,
        last=segment.last,
        index_key=segment.index_key,
        index_bytes=segment.index_bytes,
        owned=segment.owned,
    )
