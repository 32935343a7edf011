"""Retiring streams: what is left of a dead process once all of its records are in segments.

The cluster log decides it: when no partition names a stream any more, nobody will read it again,
and a reader with an older view finds out by looking at the cluster log once more. The end seal and
the greatest checkpoint stay for ever, so that a late upload of the dead process can never commit.
"""

from __future__ import annotations

from neve import runtime
from neve.cluster.state import ClusterState
from neve.errors import NotFoundError
from neve.log.keys import WAL_PREFIX, stream_of
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from neve.log.wal.reader import WalReader
from neve.store.port import Store


async def retire_streams(store: Store, state: ClusterState) -> int:
    """Delete what streams that nobody needs still hold; how many objects went."""
    needed = set(state.streams())
    alive = {broker.incarnation for broker in state.brokers.values() if broker.live}
    listed: dict[int, list[str]] = {}
    for row in await store.list(WAL_PREFIX):
        incarnation = stream_of(row.key)
        if incarnation is not None and incarnation not in needed | alive:
            listed.setdefault(incarnation, []).append(row.key)
    gone = 0
    for incarnation, keys in sorted(listed.items()):
        gone += await _retire(store, incarnation, keys)
    return gone


async def _retire(store: Store, incarnation: int, keys: list[str]) -> int:
    reader = WalReader(store, incarnation)
    if len(keys) <= 2 and not any("/rollup/" in key for key in keys):
        return 0  # seal and checkpoint: it is retired already
    try:
        end = await reader.end()
    except NotFoundError:
        return 0
    if end is None:
        return 0  # never sealed: its process may only be slow to lead anything
    number, checkpoint = end
    if checkpoint < number:
        # All below the end is in segments, so a checkpoint there has nothing to name. Numbers may
        # only go once it exists.
        await write_checkpoint(store, reader.keys, number, WalCheckpoint())
    kept = {reader.keys.number(number), reader.keys.checkpoint(number)}
    doomed = [key for key in keys if key not in kept]
    await runtime.gather(*(store.delete(key) for key in doomed))
    return len(doomed)
