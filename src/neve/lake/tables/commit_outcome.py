"""The outcome of committing a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables.progress import Progress, RangeState
from neve.lake.tables.table_ref import WrittenFile

FILE_AGE_MAX_MS = 24 * 3_600_000
"""Older files are not committed: they may soon be removed as orphans."""


class CommitKind(Enum):
    """What happened to a range."""

    COMMITTED = "committed"
    """This call committed it."""
    ALREADY = "already"
    """Another pipeline committed all of it; the files are abandoned."""
    STALE = "stale"
    """The table's offsets or its shape have changed: plan again from `progress`."""
    CLAIMED = "claimed"
    """A claim is open: overwrite its dead letters first, with `commit_dead_letters`."""


@dataclass(frozen=True)
class CommitOutcome:
    """What happened to a range, and the table's offsets."""

    kind: CommitKind
    progress: Progress
    reason: str = ""

    @property
    def in_table(self) -> bool:
        """Return True if the table has the whole range now."""
        return self.kind in {CommitKind.COMMITTED, CommitKind.ALREADY}


def closed_outcome(progress: Progress, standing: RangeState) -> CommitOutcome:
    """Return the outcome for a range that is not open."""
    if standing is RangeState.DONE:
        return CommitOutcome(CommitKind.ALREADY, progress, "committed by another pipeline")
    return CommitOutcome(CommitKind.STALE, progress, "the table's offsets have moved")


def stale_reason(table: Table, files: Sequence[WrittenFile]) -> str:
    """Return why the current table cannot take the files; empty if it can."""
    oldest_ms = runtime.now_ms() - FILE_AGE_MAX_MS
    usable = _schemas_held(table)
    for file in files:
        if file.table_uuid != str(table.metadata.table_uuid):
            return "the table was dropped and recreated since its files were written"
        if file.spec_id != table.metadata.default_spec_id:
            return "the table's partitioning has changed since its files were written"
        if file.schema_id not in usable:
            return "a column was dropped or got another type since its files were written"
        if file.written_ms < oldest_ms:
            return "its files are old enough to have been removed as orphans"
    return ""


def _schemas_held(table: Table) -> set[int]:
    """Return the ids of the schemas whose columns are all in the table's current schema.

    Files with these schemas can be committed unchanged. The current schema lacks the field id of a
    column that was dropped or rebuilt with another type.
    """
    known = set(table.schema().field_ids)
    return {each.schema_id for each in table.metadata.schemas if known.issuperset(each.field_ids)}
