"""Reads a table's progress from its metadata, also after other programs changed the table.

Neve stores the offsets in the summary of each of its snapshots and, with data to validate them
later, in a property of the table. They are looked up in this order:

1. the current snapshot and its ancestors: the first one with offsets counts. So snapshots of other
   programs hide nothing, and a table that was rolled back has the offsets of that time.
2. if that walk ends at an expired ancestor: the table's property, if the current snapshot can
   descend from the snapshot that the property was written with.
3. otherwise a table with rows is refused. Its offsets are never taken as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from neve.errors import NeveError
from neve.lake.tables.progress import Progress, from_text, to_text

SNAPSHOT_PROGRESS = "neve.progress"
TABLE_PROGRESS = "neve.progress"
# Absent, or the claim of a pipeline that has begun to commit dead letters:
# docs/contributors/lake.md.
CLAIM = "claim"
# Absent, or the letters that are rows already and must be removed from the table of letters.
REPLAYED = "replayed"


class NoProgressError(NeveError):
    """The offsets of a table and its dead letters cannot be determined."""


class LetterRun(NamedTuple):
    """Consecutive dead letters of one partition, both ends included."""

    topic_id: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class TableState:
    """The progress of a table, with its open claim and replayed letters."""

    progress: Progress = field(default_factory=dict)
    claim: str = ""
    replayed: tuple[LetterRun, ...] = ()


def read_progress(table: Table) -> Progress:
    """Refresh the table and return its progress."""
    return state_of(table.refresh()).progress


def carried_state(table: Table) -> TableState | None:
    """Return the state for a commit that moves no offset; None if the table has no offsets."""
    try:
        state = state_of(table)
    except NoProgressError:
        return None
    return state if state.progress else None


def state_of(table: Table) -> TableState:
    """Return the state of the table version of this object. Raises NoProgressError."""
    name = ".".join(table.name())
    metadata = table.metadata
    walked: list[Snapshot] = []
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        summary = summary_of(snapshot)
        if SNAPSHOT_PROGRESS in summary:
            where = f"{name}, snapshot {snapshot.snapshot_id}"
            found = _state(summary[SNAPSHOT_PROGRESS], where)
            return _reopened(found, name, metadata, snapshot)
        walked.append(snapshot)
    return _from_property(name, metadata, walked)


def _reopened(
    found: TableState, name: str, metadata: TableMetadata, snapshot: Snapshot
) -> TableState:
    """Return the state, with a claim if the table was rolled back since Neve's last snapshot.

    Neve sets the property together with each of its snapshots, so the property names another
    snapshot only after a rollback. Dead letters of the rolled-back offsets must be overwritten.
    Those of a branch that the table had left are overwritten already, so the table cannot be set
    forward to that branch.
    """
    latest = last_commit_id(metadata, name)
    if latest is None or latest == snapshot.snapshot_id:
        return found
    if _is_beside(metadata, snapshot, latest):
        raise NoProgressError(
            f"table {name} stands at snapshot {snapshot.snapshot_id}, which it had left before "
            f"its last commit, {latest}: dead letters of the time since are not those of this "
            f"snapshot. Set the table back to snapshot {latest}, or to one of its ancestors; or "
            "find out what it and its dead letters hold, and state it with declare_progress"
        )
    return replace(found, claim=f"rolled back from {latest}")


def last_commit_id(metadata: TableMetadata, name: str = "table") -> int | None:
    """Return the id of Neve's last snapshot, from the table's property."""
    text = metadata.properties.get(TABLE_PROGRESS)
    if text is None:
        return None
    anchor = from_text(text, f"{name}, its property {TABLE_PROGRESS}")[1]
    return int(anchor.get("snapshot", 0))


def _is_beside(metadata: TableMetadata, snapshot: Snapshot, latest: int) -> bool:
    """Return True if the ancestors of the last commit show that this snapshot is not one of them.

    Returns False if too many ancestors have expired to decide: the oldest remaining one cannot be
    distinguished from the table's first snapshot.
    """
    for ancestor in ancestors_of(metadata.snapshot_by_id(latest), metadata):
        if ancestor.snapshot_id == snapshot.snapshot_id:
            return False
        if _sequence(ancestor) < _sequence(snapshot):
            return True
    return False


def _from_property(name: str, metadata: TableMetadata, walked: list[Snapshot]) -> TableState:
    text = metadata.properties.get(TABLE_PROGRESS)
    if text is None:
        if walked and total_rows(walked[0]) != 0:
            raise _refusal(name, "has rows, and none of its snapshots says which offsets they are")
        return TableState()
    progress, anchor = from_text(text, f"{name}, its property {TABLE_PROGRESS}")
    doubt = _doubt(metadata, walked, anchor)
    if doubt:
        raise _refusal(name, doubt)
    return _with_marks(progress, anchor)


def _doubt(metadata: TableMetadata, walked: list[Snapshot], anchor: Mapping[str, Any]) -> str:
    """Return why the current snapshot cannot descend from the property's; empty if it can."""
    rows = int(anchor["rows"])
    if not walked:
        return f"holds nothing, and {rows} rows were committed to it" if rows else ""
    # The property's snapshot still exists but the walk did not reach it: it is not an ancestor.
    if metadata.snapshot_by_id(int(anchor["snapshot"])) is not None:
        return "was rolled back, and what was committed before that point is no longer known"
    if min(_sequence(each) for each in walked) <= int(anchor["sequence"]):
        return "was rolled back to before the last commit of a pipeline"
    # An expired ancestor and a real first snapshot look alike; row counts distinguish them.
    below = _rows_before(walked[-1])
    if below is None:
        return "was changed by a program that does not say how many rows it holds"
    if below < rows:
        return f"held {rows} rows at its last commit and {below} at its oldest known snapshot"
    return ""


def _refusal(name: str, why: str) -> NoProgressError:
    return NoProgressError(
        f"table {name} {why}, so its offsets are unknown; find out what it holds, then "
        "state it with declare_progress, or give the pipeline another table"
    )


def _state(text: str, where: str) -> TableState:
    return _with_marks(*from_text(text, where))


def _with_marks(progress: Progress, more: Mapping[str, Any]) -> TableState:
    replayed = tuple(LetterRun(*run) for run in more.get(REPLAYED, ()))
    return TableState(progress, str(more.get(CLAIM, "")), replayed)


# --- what snapshots say


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's summary as plain properties."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def total_rows(snapshot: Snapshot) -> int | None:
    """Return the number of rows of this snapshot; None if its summary lacks it."""
    return _number(snapshot, "total-records")


def _rows_before(snapshot: Snapshot) -> int | None:
    total = total_rows(snapshot)
    if total is None:
        return None
    added = _number(snapshot, "added-records") or 0
    return total - added + (_number(snapshot, "deleted-records") or 0)


def _number(snapshot: Snapshot, name: str) -> int | None:
    text = summary_of(snapshot).get(name)
    return int(text) if text is not None and text.isdigit() else None


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


# --- what Neve writes


def birth_property() -> dict[str, str]:
    """Return the property of a new table: it has no offsets."""
    return {TABLE_PROGRESS: to_text({}, snapshot=0, sequence=0, rows=0)}


def snapshot_properties(state: TableState) -> dict[str, str]:
    """Return the properties for the summary of a snapshot."""
    return {SNAPSHOT_PROGRESS: to_text(state.progress, **_marks(state))}


def table_property(state: TableState, snapshot: Snapshot) -> dict[str, str]:
    """Return the table's property that is set together with this snapshot."""
    text = to_text(
        state.progress,
        snapshot=snapshot.snapshot_id,
        sequence=_sequence(snapshot),
        rows=total_rows(snapshot) or 0,
        **_marks(state),
    )
    return {TABLE_PROGRESS: text}


def _marks(state: TableState) -> dict[str, Any]:
    marks = {CLAIM: state.claim, REPLAYED: state.replayed}
    return {name: mark for name, mark in marks.items() if mark}
