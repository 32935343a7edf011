"""Expires old snapshots and deletes the objects that only they refer to.

It keeps the newest and the young snapshots, those that branches and tags need, and the chain down
to the newest snapshot with offsets. First it removes snapshots from the table, then it deletes
their objects: if it is killed in between, the objects are orphans.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotsUpdate

from neve import runtime
from neve.lake.tables.commit_attempt import MAIN, CommitUnknownError, refreshed, unchanged
from neve.lake.tables.history import SNAPSHOT_PROGRESS, last_commit_id, summary_of
from neve.lake.tables.maintenance.policy import READING_MS, MaintenancePolicy, MaintenanceReport
from neve.lake.tables.maintenance.reachable_files import ReachableFiles
from neve.lake.tables.pyiceberg_private import send_commit


def expire(table: Table, policy: MaintenancePolicy, report: MaintenanceReport) -> None:
    """Expire what the policy does not keep, then delete unreferenced objects."""
    kept = _kept_ids(refreshed(table).metadata, policy)
    expired = [each for each in table.metadata.snapshots if each.snapshot_id not in kept]
    if not expired:
        return
    reachable = ReachableFiles(table.io)
    # Before the commit, while their manifests certainly exist.
    dying = reachable.of(expired)
    if not _forget(table, expired):
        return
    report.snapshots_expired += len(expired)
    dead = sorted(dying - reachable.of(table.metadata.snapshots))
    below = table.location().rstrip("/") + "/"
    for path in dead:
        # Files outside the location were added by other programs and do not belong to the table.
        if path.startswith(below):
            report.objects_deleted += _delete(table.io, path)


def _kept_ids(metadata: TableMetadata, policy: MaintenancePolicy) -> set[int]:
    newest_first = sorted(metadata.snapshots, key=lambda each: each.timestamp_ms, reverse=True)
    kept = {
        each.snapshot_id
        for place, each in enumerate(newest_first)
        if runtime.now_ms() - each.timestamp_ms
        <= (policy.keep_snapshots_ms if place < policy.keep_snapshots_most else READING_MS)
    }
    chain = list(ancestors_of(metadata.current_snapshot(), metadata))
    carrying = next(
        (place for place, each in enumerate(chain) if SNAPSHOT_PROGRESS in summary_of(each)), 0
    )
    kept |= {each.snapshot_id for each in chain[: max(policy.keep_snapshots_least, carrying + 1)]}
    kept |= _left_line(metadata, chain)
    for name, ref in metadata.refs.items():
        if name != MAIN:
            held = metadata.snapshot_by_id(ref.snapshot_id)
            kept |= {each.snapshot_id for each in ancestors_of(held, metadata)}
    return kept


def _left_line(metadata: TableMetadata, chain: Sequence[Snapshot]) -> set[int]:
    """Return Neve's last commit and its ancestors if the table was set to another snapshot.

    They distinguish a rolled-back table from one that was set to a branch it had left, and an
    operator may set the table back to them.
    """
    latest = last_commit_id(metadata)
    if latest is None or any(each.snapshot_id == latest for each in chain):
        return set()
    line = ancestors_of(metadata.snapshot_by_id(latest), metadata)
    return {each.snapshot_id for each in line}


def _forget(table: Table, expired: list[Snapshot]) -> bool:
    """Remove snapshots from the table. Returns False if another commit came first."""
    ids = [each.snapshot_id for each in expired]
    try:
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids})
        send_commit(table, (update,), unchanged(table))
    except CommitFailedException:
        return False
    except Exception as error:
        metadata = refreshed(table, error).metadata
        if any(metadata.snapshot_by_id(each) is not None for each in ids):
            raise CommitUnknownError(
                f"table {'.'.join(table.name())}: its snapshots could not be expired ({error}); "
                "the next run retries"
            ) from error
    # Deletion is based on the table as it is now, not on the request.
    refreshed(table)
    return True


def _delete(io: FileIO, path: str) -> int:
    try:
        io.delete(path)
    except FileNotFoundError:
        return 0
    return 1
