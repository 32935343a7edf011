"""Commits a range of offsets and its rows to a table, exactly once.

Each attempt reads the table, compares its offsets with those that the range was planned from, and
only then proposes the files. After a refused proposal the next attempt compares the offsets again:
the same files either fit the current table or are abandoned. They are not deleted, because a
delayed request may still refer to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyiceberg.table import Table

from neve.lake.tables.commit_attempt import (
    ATTEMPTS_MAX,
    Attempt,
    BusyTableError,
    Proposal,
    attempt,
    landed,
    propose,
    refreshed,
)
from neve.lake.tables.commit_outcome import CommitKind, CommitOutcome, closed_outcome, stale_reason
from neve.lake.tables.dead_letters import Claim, commit_dead_letters
from neve.lake.tables.history import TableState, state_of
from neve.lake.tables.progress import Progress, RangeState, check_forward, merged, range_state
from neve.lake.tables.table_ref import WrittenFile


def commit(
    table: Table,
    files: Sequence[WrittenFile],
    expected: Progress,
    new: Progress,
    *,
    claim: Claim | None = None,
    properties: Mapping[str, str] | None = None,
) -> CommitOutcome:
    """Append the files and move the offsets from `expected` to `new`, atomically.

    `claim` comes from `commit_dead_letters` if the range has dead letters. `properties` of the
    table are set in the same commit. Raises BusyTableError and CommitUnknownError.
    """
    check_forward(expected, new)
    proposals: list[Proposal] = []
    for _ in range(ATTEMPTS_MAX):
        state = state_of(refreshed(table))
        standing = range_state(state.progress, expected, new)
        if standing is not RangeState.OPEN:
            if any(landed(table, proposal) for proposal in proposals):
                return CommitOutcome(CommitKind.COMMITTED, state.progress)
            return closed_outcome(state.progress, standing)
        if state.claim != (claim.token if claim else ""):
            return CommitOutcome(CommitKind.CLAIMED, state.progress, "dead letters are open")
        reason = stale_reason(table, files)
        if reason:
            return CommitOutcome(CommitKind.STALE, state.progress, reason)
        after = replace(state, progress=merged(state.progress, new), claim="")
        entries = [file.entry() for file in files]
        proposals.append(propose(table, after, add=entries, properties=properties))
        if attempt(table, proposals[-1]) is Attempt.LANDED:
            return CommitOutcome(CommitKind.COMMITTED, after.progress)
    raise BusyTableError(
        f"table {'.'.join(table.name())}: {ATTEMPTS_MAX} commits in a row failed; try later"
    )


def commit_range(
    table: Table,
    files: Sequence[WrittenFile],
    expected: Progress,
    new: Progress,
    *,
    letters: Callable[[], Table],
    letter_files: Sequence[WrittenFile] = (),
    properties: Mapping[str, str] | None = None,
) -> CommitOutcome:
    """Commit dead letters first, then the rows; only the rows if there are no letters or claims.

    `letters` opens the table of dead letters, which is created when it is first needed.
    """
    check_forward(expected, new)
    outcome: CommitOutcome | None = None
    for _ in range(ATTEMPTS_MAX):
        claim: Claim | None = None
        if letter_files or outcome is not None:
            claimed = commit_dead_letters(table, letters(), letter_files, expected, new)
            if isinstance(claimed, CommitOutcome):
                return claimed
            claim = claimed
        outcome = commit(table, files, expected, new, claim=claim, properties=properties)
        if outcome.kind is not CommitKind.CLAIMED:
            return outcome
    assert outcome is not None
    return outcome


def declare_progress(table: Table, progress: Progress) -> None:
    """Set the offsets of a table that lost them or was filled by another program.

    For operators: nothing is checked.
    """
    for _ in range(ATTEMPTS_MAX):
        if attempt(refreshed(table), propose(table, TableState(progress))) is Attempt.LANDED:
            return
    raise BusyTableError(f"table {'.'.join(table.name())} is changed too often; try later")
