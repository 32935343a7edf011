"""What became of a range that somebody wanted to commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables.progress import Progress, RangeState
from neve.lake.tables.table_ref import WrittenFile

FILE_AGE_MAX_MS = 24 * 3_600_000
"""An older file may soon be taken for an orphan, so it is no longer committed."""


class CommitKind(Enum):
    """What became of a range."""

    COMMITTED = "committed"
    """It is in the table, by this call."""
    ALREADY = "already"
    """Somebody else has committed all of it; the files are abandoned."""
    STALE = "stale"
    """The table stands elsewhere, or has changed its shape: plan anew from `progress`."""
    CLAIMED = "claimed"
    """Somebody's dead letters are open: overwrite them first, with `commit_dead_letters`."""


@dataclass(frozen=True)
class CommitOutcome:
    """What became of a range, and where the table stands."""

    kind: CommitKind
    progress: Progress
    reason: str = ""

    @property
    def in_table(self) -> bool:
        """Whether the table has the whole range now."""
        return self.kind in {CommitKind.COMMITTED, CommitKind.ALREADY}


def closed_outcome(progress: Progress, standing: RangeState) -> CommitOutcome:
    """The outcome for a range that is not open."""
    if standing is RangeState.DONE:
        return CommitOutcome(CommitKind.ALREADY, progress, "committed by somebody else")
    return CommitOutcome(CommitKind.STALE, progress, "the table's offsets are others")


def stale_reason(table: Table, files: Sequence[WrittenFile]) -> str:
    """Why the table as it is now cannot take the files, or nothing."""
    oldest_ms = runtime.now_ms() - FILE_AGE_MAX_MS
    usable = _schemas_held(table)
    for file in files:
        if file.table_uuid != str(table.metadata.table_uuid):
            return "the table was dropped and made anew since its files were written"
        if file.spec_id != table.metadata.default_spec_id:
            return "the table's partitioning has changed since its files were written"
        if file.schema_id not in usable:
            return "a column was dropped or got another type since its files were written"
        if file.written_ms < oldest_ms:
            return "its files are so old that they may have been removed as orphans"
    return ""


def _schemas_held(table: Table) -> set[int]:
    """The schemas of which the table still has every column: their files can be read as they are.

    A column that was dropped, or was given another type, is not found in a file by its id.
    """
    known = set(table.schema().field_ids)
    return {each.schema_id for each in table.metadata.schemas if known.issuperset(each.field_ids)}
