"""When a pipeline last moved a table's offsets, as the table's snapshots tell.

The newest snapshot is often not that commit: merges, claims and replays carry the offsets along as
they are, and strangers write snapshots without any. What counts is the snapshot that has other
offsets than its ancestors.
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
    """Its time; where its snapshot was expired, that of the oldest known one that follows it."""

    at_ms: int
    expired: bool = False


def last_commit_of(table: Table) -> LastCommit | None:
    """The last commit of the table as this object holds it; None where there was none."""
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
    # The line begins here, or was expired up to here: the two look alike.
    if oldest is None or not _was_moved(table, name, first):
        return None
    if first is not None and first.can_move:
        return LastCommit(first.snapshot.timestamp_ms)
    return LastCommit(oldest.timestamp_ms, expired=True)


class _Carrier(NamedTuple):
    """A snapshot that carries offsets, and what else stands beside them."""

    snapshot: Snapshot
    progress: Progress
    marks: Mapping[str, Any]

    @property
    def can_move(self) -> bool:
        """Whether it may be a commit; a merge, a claim and a replay only carry offsets along."""
        summary = self.snapshot.summary
        is_merge = summary is not None and summary.operation is Operation.REPLACE
        return not is_merge and not self.marks.get(CLAIM) and not self.marks.get(REPLAYED)


def _was_moved(table: Table, name: str, first: _Carrier | None) -> bool:
    """Whether there are offsets at all; where no snapshot has any left, the property tells."""
    if first is not None:
        return bool(first.progress)
    text = table.metadata.properties.get(TABLE_PROGRESS)
    return text is not None and bool(from_text(text, f"{name}, its property {TABLE_PROGRESS}")[0])
