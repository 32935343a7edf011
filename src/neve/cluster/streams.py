"""Retirement of streams: delete what a dead process left once all its records are in segments.

The cluster log decides which. A process that has ended gets no further partition, so once no
partition names its stream, the stream is never read again. A reader with an older view detects that
by reading the cluster log again. The end seal and the last checkpoint stay for ever, so that a late
upload of the dead process can never commit.
"""

from __future__ import annotations

from neve.cluster.log import ClusterLog
from neve.cluster.recovery import INFLIGHT_MAX
from neve.cluster.state import ClusterState
from neve.errors import NeveError
from neve.log.keys import WAL_PREFIX, stream_of, wal_stream
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from neve.log.wal.object import SEAL_BYTES
from neve.log.wal.reader import WalReader
from neve.log.wal.seal import Sealer
from neve.store.deletion import delete_all
from neve.store.port import ObjectInfo, Store


async def retire_streams(store: Store, cluster: ClusterLog) -> int:
    """Delete the objects of streams that no partition needs. Returns how many were deleted.

    A stream that cannot be read does not stop the others. Raises the first failure at the end.
    """
    streams = await _listed(store)
    # The cluster log is read after the listing: a stream that was listed belongs to a process that
    # had registered by then, so it counts as live here unless it has ended.
    needed = _needed(await cluster.refresh())
    gone = 0
    failure: NeveError | None = None
    for incarnation, rows in sorted(streams.items()):
        if incarnation in needed or _is_retired(incarnation, rows):
            continue
        try:
            gone += await _retire(store, incarnation, [row.key for row in rows])
        except NeveError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return gone


def _needed(state: ClusterState) -> set[int]:
    alive = {broker.incarnation for broker in state.brokers.values() if broker.live}
    return alive | set(state.streams())


async def _listed(store: Store) -> dict[int, list[ObjectInfo]]:
    """The objects of every stream."""
    listed: dict[int, list[ObjectInfo]] = {}
    for row in await store.list(WAL_PREFIX):
        incarnation = stream_of(row.key)
        if incarnation is not None:
            listed.setdefault(incarnation, []).append(row)
    return listed


def _is_retired(incarnation: int, rows: list[ObjectInfo]) -> bool:
    """Whether only the end seal and its checkpoint are left, as the listing alone shows."""
    series = wal_stream(incarnation)
    numbers = {series.number_of(row.key) for row in rows} - {None}
    checkpoints = {series.checkpoint_of(row.key) for row in rows} - {None}
    if len(numbers) + len(checkpoints) < len(rows):
        return False  # roll-ups
    if checkpoints:
        return len(numbers) == 1 and numbers == checkpoints
    return numbers == {0} and rows[0].size == SEAL_BYTES  # nothing was written before the seal


async def _retire(store: Store, incarnation: int, keys: list[str]) -> int:
    end = await WalReader(store, incarnation).end()
    if end is None:  # not sealed: no process had to read the stream after its own one ended
        await Sealer(store, incarnation, window=INFLIGHT_MAX).seal()
        end = await WalReader(store, incarnation).end()
        assert end is not None  # a seal is never deleted
    number, checkpoint = end
    series = wal_stream(incarnation)
    if checkpoint < number:
        # All records below the end are in segments, so the checkpoint there is empty. Numbers may
        # be deleted only once it exists.
        await write_checkpoint(store, series, number, WalCheckpoint())
    kept = {series.number(number), series.checkpoint(number)}
    doomed = [key for key in keys if key not in kept]
    await delete_all(store, doomed)
    return len(doomed)
