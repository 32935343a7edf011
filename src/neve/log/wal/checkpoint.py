"""The checkpoint of a WAL stream: the state after its numbers below n, which may then be deleted.

It names the roll-ups that hold the records still untiered, all of them uploaded for this checkpoint
only, and has every partition's next offset: a reader whose tail ends below that offset must resolve
again.
"""

from __future__ import annotations

from neve import runtime
from neve.errors import ExistsError, NotFoundError
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    Stored,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import SeriesKeys
from neve.store.port import Store


class PartitionEnd(Stored, frozen=True):
    """A partition's next offset after the numbers below the checkpoint, and its leader epoch."""

    topic_id: str
    partition: int
    epoch: int
    next: int


class WalCheckpoint(Stored, frozen=True):
    """The payload of a checkpoint: keys of roll-ups, and the ends of partitions."""

    rollups: tuple[str, ...] = ()
    partitions: tuple[PartitionEnd, ...] = ()


async def read_checkpoint(store: Store, keys: SeriesKeys, number: int) -> WalCheckpoint | None:
    """Read a checkpoint's payload; None if it does not exist because a greater one replaced it."""
    key = keys.checkpoint(number)

    def decode(data: memoryview) -> WalCheckpoint:
        envelope = open_envelope(data, Kind.WAL_CHECKPOINT, keys.prefix, number, key)
        payload: WalCheckpoint = decode_payload(envelope, WalCheckpoint, key)
        return payload

    try:
        return await fetch_checked(store, key, ENVELOPE_BYTES_MAX, decode)
    except NotFoundError:
        return None


async def write_checkpoint(
    store: Store, keys: SeriesKeys, number: int, payload: WalCheckpoint
) -> bool:
    """Create a checkpoint. Returns False if a different one already exists, which is then valid."""
    author = runtime.token(AUTHOR_BYTES)
    data = seal_envelope(Kind.WAL_CHECKPOINT, keys.prefix, number, author, payload)
    try:
        await store.create(keys.checkpoint(number), data)
    except ExistsError:
        # If an earlier attempt took effect, it is ours and names the roll-ups that we uploaded.
        return await read_checkpoint(store, keys, number) == payload
    return True
