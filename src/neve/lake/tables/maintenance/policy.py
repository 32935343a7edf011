"""How much upkeep a table gets, and what was done."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import InvalidError
from neve.lake.tables.commit_outcome import FILE_AGE_MAX_MS

MIB = 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# A snapshot this young is kept whatever else holds: somebody may be reading it.
READING_MS = 15 * 60_000
# Twice what a file may wait for its commit, so that clocks may differ by as much.
ORPHAN_AGE_LEAST_MS = 2 * FILE_AGE_MAX_MS


@dataclass(frozen=True, kw_only=True)
class MaintenancePolicy:
    """What is merged, kept and removed. The defaults suit a pipeline that commits every 10 s."""

    target_bytes: int = 128 * MIB
    """What merged files are to be."""
    small_bytes: int = 32 * MIB
    """Only files below this are merged, so that no row is rewritten over and over."""
    merge_files_least: int = 8
    """Fewer small files of one partition are left for later."""
    merge_groups_max: int = 16
    """So many merges at most in one run, each a commit of its own."""
    keep_snapshots_ms: int = 5 * DAY_MS
    """Younger snapshots are kept: queries that run and time travel need them."""
    keep_snapshots_least: int = 10
    """So many of the newest are kept, however old."""
    keep_snapshots_most: int = 200
    """Beyond so many even young ones go: each makes every commit a little slower."""
    orphan_age_ms: int = 3 * DAY_MS
    """What nothing refers to is removed when it is so old, by the store's clock and ours."""

    def __post_init__(self) -> None:
        if self.small_bytes > self.target_bytes:
            raise InvalidError(
                "small_bytes is above target_bytes: large files would be merged over and over"
            )
        if not 1 <= self.keep_snapshots_least <= self.keep_snapshots_most:
            raise InvalidError(
                "keep_snapshots_least is at least 1 and not above keep_snapshots_most"
            )
        if self.merge_files_least < 2:
            raise InvalidError("merge_files_least is at least 2: one file is merged with nothing")
        if self.orphan_age_ms < ORPHAN_AGE_LEAST_MS:
            raise InvalidError(
                f"orphan_age_ms must be at least {ORPHAN_AGE_LEAST_MS} (two days): files that a "
                "pipeline has written and not yet committed look like orphans"
            )


@dataclass
class MaintenanceReport:
    """What one run did."""

    files_merged: int = 0
    files_written: int = 0
    merges_postponed: int = 0
    """Overtaken by other commits each time: left for the next run."""
    snapshots_expired: int = 0
    objects_deleted: int = 0
    orphans_deleted: int = 0
    bytes_deleted: int = 0
