"""The payloads of a manifest's numbers and runs: changes to one partition's list of segments.

A number has one or more changes that take effect together. Folding a change needs no other object,
so a checkpoint is a function of the numbers below it.
"""

from __future__ import annotations

from typing import TypeAlias

from neve.log.envelope import Stored
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX
from neve.log.segment.kfs import SEGMENT_BYTES_MAX

NO_CRC = -1
"""The `crc` of an imported segment whose checksum is not known."""


class Segment(Stored, frozen=True, kw_only=True):
    """A segment as the manifest lists it: its keys, and what planning a read needs.

    `index_key` is None only for imported segments without an index. `owned` is False for objects
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
        """The maximum size of the object: an imported one may have been overwritten since."""
        return self.bytes if self.owned else SEGMENT_BYTES_MAX

    @property
    def index_bytes_max(self) -> int:
        """The maximum size of the bundle, which may also have been overwritten if imported."""
        return self.index_bytes if self.owned else FOREIGN_INDEX_BYTES_MAX


class Removal(Stored, frozen=True, kw_only=True):
    """A segment removed from the list, with what folding needs to doom its objects."""

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
    """Tiering adds segments that continue the log where the listed ones end."""

    segments: tuple[Segment, ...]


class Replace(Stored, frozen=True, tag="replace"):
    """Merging replaces segments by others with the same offsets. The removed ones are doomed."""

    removed: tuple[Removal, ...]
    added: tuple[Segment, ...]


class Reindex(Stored, frozen=True, tag="reindex"):
    """A segment's lost or damaged bundle was rebuilt under a new key. The old one is doomed.

    `old_index_key` is None if there was no index, or it was imported and is not Neve's to delete.
    """

    key: str
    base: int
    old_index_key: str | None
    index_key: str
    index_bytes: int


class Start(Stored, frozen=True, tag="start"):
    """Retention or DeleteRecords raises the log's start. The removed segments are doomed."""

    offset: int
    removed: tuple[Removal, ...] = ()


class Doom(Stored, frozen=True, tag="doom"):
    """Objects that must not be listed from now on, so that they can be deleted."""

    keys: tuple[str, ...]


class Collected(Stored, frozen=True, tag="collected"):
    """Doomed objects that were deleted, so that the collector does not delete them again."""

    keys: tuple[str, ...]


class Runs(Stored, frozen=True, tag="runs"):
    """Segments move into runs, or from runs into other runs. Replaced runs are doomed."""

    added: tuple[Run, ...]
    replaced: tuple[str, ...] = ()


class Skip(Stored, frozen=True, tag="skip", omit_defaults=True):
    """Offsets that an operator gave up for lost, so that readers can continue. Never removed.

    If `end_known` is False, records from `first` on were lost, and how many is not known: the log
    leaps over more offsets than can have been assigned, and continues after `last`. `wal_store` is
    the id of the WAL store that was given up.
    """

    first: int
    last: int
    at_ms: int
    reason: str
    end_known: bool = True
    wal_store: str | None = None


Change: TypeAlias = Add | Replace | Reindex | Start | Doom | Collected | Runs | Skip


class ManifestRecord(Stored, frozen=True):
    """The payload of one manifest number."""

    changes: tuple[Change, ...]


def removal(segment: Segment) -> Removal:
    """Return the removal of a listed segment."""
    return Removal(
        key=segment.key,
        base=segment.base,
        last=segment.last,
        index_key=segment.index_key,
        index_bytes=segment.index_bytes,
        owned=segment.owned,
    )
