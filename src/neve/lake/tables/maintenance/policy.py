"""The policy of table maintenance, and the report of a run."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import InvalidError
from neve.lake.tables.commit_outcome import FILE_AGE_MAX_MS

MIB = 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Younger snapshots are always kept: queries may be reading them.
READING_MS = 15 * 60_000
# Twice the maximum age of a file at its commit: clocks may differ.
ORPHAN_AGE_LEAST_MS = 2 * FILE_AGE_MAX_MS


@dataclass(frozen=True, kw_only=True)
class MaintenancePolicy:
    """What to merge, keep and remove. The defaults suit a pipeline that commits every 10 s."""

    target_bytes: int = 128 * MIB
    """The size of merged files."""
    small_bytes: int = 32 * MIB
    """Only smaller files are merged, so that rows are not rewritten repeatedly."""
    merge_files_least: int = 8
    """The minimum number of small files in one partition for a merge."""
    merge_groups_max: int = 16
    """The maximum number of merges per run; each is a commit."""
    keep_snapshots_ms: int = 5 * DAY_MS
    """Younger snapshots are kept for running queries and time travel."""
    keep_snapshots_least: int = 10
    """The number of newest snapshots that are kept at any age."""
    keep_snapshots_most: int = 200
    """Beyond this number young snapshots expire too: each slows down every commit."""
    orphan_age_ms: int = 3 * DAY_MS
    """The age at which unreferenced objects are removed, by the store's clock and ours."""

    def __post_init__(self) -> None:
        if self.small_bytes > self.target_bytes:
            raise InvalidError(
                "small_bytes must be <= target_bytes: large files would be merged repeatedly"
            )
        if not 1 <= self.keep_snapshots_least <= self.keep_snapshots_most:
            raise InvalidError("keep_snapshots_least must be >= 1 and <= keep_snapshots_most")
        if self.merge_files_least < 2:
            raise InvalidError("merge_files_least must be >= 2")
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
    """Merges that other commits overtook; the next run retries them."""
    snapshots_expired: int = 0
    objects_deleted: int = 0
    orphans_deleted: int = 0
    bytes_deleted: int = 0
