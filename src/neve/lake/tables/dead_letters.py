"""Commits dead letters before the rows of the same range.

Two tables cannot change atomically, so the order of four steps keeps them consistent:

1. read the table of letters;
2. commit a claim to the topic's table: a snapshot without files that names this attempt. It fails
   if the offsets have moved. The newest claim counts: earlier holders can no longer commit rows;
3. overwrite the letters of all offsets above the table's. It fails if the table of letters is no
   longer the one of step 1;
4. commit the rows. It fails unless the claim is still the newest. This closes the claim.

A pipeline that finds an open claim, because its holder died or is slow, takes these steps too, even
without letters of its own. So letters of an abandoned attempt do not stay. A holder that was
overtaken cannot overwrite letters later, since the other pipeline's step 3 changed the table that
it read in step 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables.commit_attempt import (
    ATTEMPTS_MAX,
    Attempt,
    BusyTableError,
    attempt,
    propose,
    refreshed,
)
from neve.lake.tables.commit_outcome import CommitKind, CommitOutcome, closed_outcome, stale_reason
from neve.lake.tables.dead_letter_files import RECORD_ID, Mask, record_ids, rewrite
from neve.lake.tables.history import state_of
from neve.lake.tables.live_files import bounds_of
from neve.lake.tables.progress import Progress, RangeState, offset_of, range_state
from neve.lake.tables.table_ref import WrittenFile

TOKEN_BYTES = 12
# Files of more partitions are read rather than decided by their bounds.
BOUNDED_PARTITIONS_MAX = 1000


@dataclass(frozen=True)
class Claim:
    """Identifies an attempt whose dead letters are committed and whose rows are not."""

    token: str


def commit_dead_letters(
    table: Table, letters: Table, files: Sequence[WrittenFile], expected: Progress, new: Progress
) -> Claim | CommitOutcome:
    """Take steps 1 to 3. Returns a claim, or an outcome if the range cannot be committed."""
    claim = Claim(runtime.token(TOKEN_BYTES).hex())
    for _ in range(ATTEMPTS_MAX):
        refreshed(letters)
        claimed = _claim(table, claim, expected, new)
        if isinstance(claimed, CommitOutcome):
            return claimed
        reason = stale_reason(letters, files)
        if reason:
            return CommitOutcome(CommitKind.STALE, claimed, reason)
        if _overwrite(letters, files, claimed) is Attempt.LANDED:
            return claim
    raise BusyTableError(
        f"table {'.'.join(letters.name())}: {ATTEMPTS_MAX} commits in a row failed; try later"
    )


def _claim(
    table: Table, claim: Claim, expected: Progress, new: Progress
) -> Progress | CommitOutcome:
    """Make this claim the newest one. Returns the table's offsets at that point."""
    for _ in range(ATTEMPTS_MAX):
        state = state_of(refreshed(table))
        standing = range_state(state.progress, expected, new)
        if standing is not RangeState.OPEN:
            return closed_outcome(state.progress, standing)
        if state.claim == claim.token:
            return state.progress
        attempt(table, propose(table, replace(state, claim=claim.token)))
    raise BusyTableError(f"table {'.'.join(table.name())} is changed too often; try later")


def _overwrite(letters: Table, files: Sequence[WrittenFile], progress: Progress) -> Attempt:
    """Replace the letters above the offsets by the files. Commits even if nothing changes."""
    return rewrite(
        letters,
        files,
        stays=lambda batch: decided(batch, progress),
        stays_whole=lambda file: _all_decided(letters, file, progress),
    )


# --- decided letters: those of offsets that the table has passed


def _all_decided(letters: Table, file: DataFile, progress: Progress) -> bool:
    """Decide by a file's bounds alone; False means that its rows must be read."""
    ids, partitions, offsets = (bounds_of(letters, file, name) for name in RECORD_ID)
    if ids is None or partitions is None or offsets is None or ids[0] != ids[1]:
        return False
    if partitions[1] - partitions[0] > BOUNDED_PARTITIONS_MAX:
        return False
    ends = (
        offset_of(progress, ids[0], partition)
        for partition in range(partitions[0], partitions[1] + 1)
    )
    return all(end is not None and offsets[1] < end for end in ends)


def decided(batch: pa.RecordBatch, progress: Progress) -> Mask:
    """Return a mask of the letters whose offsets the table has passed."""
    ids = record_ids(batch)
    return np.fromiter((_is_decided(progress, *each) for each in ids), dtype=np.bool_)


def _is_decided(
    progress: Progress, topic_id: str | None, partition: int | None, offset: int | None
) -> bool:
    """Return True also for a row without an origin: no pipeline wrote it or may remove it."""
    if topic_id is None or partition is None or offset is None:
        return True
    end = offset_of(progress, topic_id, partition)
    return end is not None and offset < end
