"""Retiring streams: what is left of a dead process once all of its records are in segments.

The cluster log decides it: when no partition names a stream any more, nobody will read it again,
and a reader with an older view finds out by looking at the cluster log once more. The end seal and
the greatest checkpoint stay for ever, so that a late upload of the dead process can never commit.
"""

from __future__ import annotations

from neve.cluster.log import ClusterLog
from neve.cluster.state import ClusterState
from neve.errors import NeveError
from neve.log.keys import WAL_PREFIX, stream_of, wal_stream
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from neve.log.wal.reader import WalReader
from neve.store.deletion import delete_all
from neve.store.port import Store


async def retire_streams(store: Store, state: ClusterState) -> int:
    """Delete what streams that nobody needs still hold; how many objects went.

    A stream that cannot be read keeps none of the others from being retired; it is told at the end.
    """
    ends: dict[int, tuple[int, int]] = {}
    failure: NeveError | None = None
    listed = await _unneeded(store, state)
    for incarnation, keys in sorted(listed.items()):
        if _is_retired(incarnation, keys):
            continue
        try:
            end = await WalReader(store, incarnation).end()
        except NeveError as error:
            failure = failure or error
            continue
        if end is not None:  # never sealed: its process may only be slow to lead anything
            ends[incarnation] = end
    gone = 0
    if ends:
        # Looked at after the seals: until then a process that we thought unneeded may have led and
        # committed. Behind its seal it commits nothing any more, so unneeded is for ever.
        needed = _needed(await ClusterLog(store).must_exist())
        for incarnation, end in ends.items():
            if incarnation not in needed:
                gone += await _retire(store, incarnation, listed[incarnation], *end)
    if failure is not None:
        raise failure
    return gone


def _needed(state: ClusterState) -> set[int]:
    alive = {broker.incarnation for broker in state.brokers.values() if broker.live}
    return alive | set(state.streams())


async def _unneeded(store: Store, state: ClusterState) -> dict[int, list[str]]:
    """The keys of every stream that is neither needed nor a live process's."""
    needed = _needed(state)
    listed: dict[int, list[str]] = {}
    for row in await store.list(WAL_PREFIX):
        incarnation = stream_of(row.key)
        if incarnation is not None and incarnation not in needed:
            listed.setdefault(incarnation, []).append(row.key)
    return listed


def _is_retired(incarnation: int, keys: list[str]) -> bool:
    """Whether only the end seal and its checkpoint are left, told without a request."""
    series = wal_stream(incarnation)
    numbers = {series.number_of(key) for key in keys} - {None}
    checkpoints = {series.checkpoint_of(key) for key in keys} - {None}
    if len(numbers) + len(checkpoints) < len(keys):
        return False  # roll-ups
    return (numbers == {0} and not checkpoints) or (len(numbers) == 1 and numbers == checkpoints)


async def _retire(
    store: Store, incarnation: int, keys: list[str], number: int, checkpoint: int
) -> int:
    series = wal_stream(incarnation)
    if checkpoint < number:
        # All below the end is in segments, so a checkpoint there has nothing to name. Numbers may
        # only go once it exists.
        await write_checkpoint(store, series, number, WalCheckpoint())
    kept = {series.number(number), series.checkpoint(number)}
    doomed = [key for key in keys if key not in kept]
    await delete_all(store, doomed)
    return len(doomed)
