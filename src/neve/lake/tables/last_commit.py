"""Finds the time when a pipeline last moved a table's offsets, from the table's snapshots.

The newest snapshot is often not that commit: merges, claims and replays carry the offsets along
unchanged, and other programs write snapshots without any. The commit is the snapshot whose offsets
differ from those of its ancestors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from neve.lake.tables.history import CLAIM, REPLAYED, SNAPSHOT_PROGRESS, TABLE_PROGRESS, summary_of
from neve.lake.tables.progress import Progress, from_text


@dataclass(frozen=True)
class LastCommit:
    """The time of the commit; if its snapshot was expired, that of the oldest known later one."""

    at_ms: int
    expired: bool = False


def last_commit_of(table: Table) -> LastCommit | None:
    """Return the last commit of the table version of this object; None if there is none."""
    name = ".".join(table.name())
    oldest: Snapshot | None = None
    first: _Carrier | None = None
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        oldest = snapshot
        text = summary_of(snapshot).get(SNAPSHOT_PROGRESS)
        if text is None:
            continue
        where = f"{name}, snapshot {snapshot.snapshot_id}"
        found = _Carrier(snapshot, *from_text(text, where))
        if first is not None and found.progress != first.progress:
            return LastCommit(first.snapshot.timestamp_ms)
        first = found
    # The history begins here, or was expired up to here: the two look alike.
    if oldest is None or not _was_moved(table, name, first):
        return None
    if first is not None and first.can_move:
        return LastCommit(first.snapshot.timestamp_ms)
    return LastCommit(oldest.timestamp_ms, expired=True)


class _Carrier(NamedTuple):
    """A snapshot with offsets, and the other marks in its summary."""

    snapshot: Snapshot
    progress: Progress
    marks: Mapping[str, Any]

    @property
    def can_move(self) -> bool:
        """Return True if it may move offsets: merges, claims and replays do not."""
        summary = self.snapshot.summary
        is_merge = summary is not None and summary.operation is Operation.REPLACE
        return not is_merge and not self.marks.get(CLAIM) and not self.marks.get(REPLAYED)


def _was_moved(table: Table, name: str, first: _Carrier | None) -> bool:
    """Return True if the table has offsets, in a snapshot or in its property."""
    if first is not None:
        return bool(first.progress)
    text = table.metadata.properties.get(TABLE_PROGRESS)
    return text is not None and bool(from_text(text, f"{name}, its property {TABLE_PROGRESS}")[0])
