"""The checkpoint of a WAL stream: the sum of its numbers below n, for later readers.

It names the roll-ups that hold what was still untiered, all of them uploaded for this checkpoint
alone, and keeps every partition's next offset: a reader whose tail falls short of it knows that it
must resolve again.
"""

from __future__ import annotations

from neve import runtime
from neve.errors import ExistsError, NotFoundError
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    Stored,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.fetch import fetch_checked
from neve.log.keys import SeriesKeys
from neve.store.port import Store


class PartitionEnd(Stored, frozen=True):
    """How far a partition's offsets go in the numbers below the checkpoint."""

    topic_id: str
    partition: int
    epoch: int
    next: int


class WalCheckpoint(Stored, frozen=True):
    """The payload."""

    rollups: tuple[str, ...] = ()
    partitions: tuple[PartitionEnd, ...] = ()


async def read_checkpoint(store: Store, keys: SeriesKeys, number: int) -> WalCheckpoint | None:
    """A checkpoint's payload; None where it is not there (a greater one replaced it)."""
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
    """Create a checkpoint; False where another one is there already, which counts instead."""
    author = runtime.token(AUTHOR_BYTES)
    data = seal_envelope(Kind.WAL_CHECKPOINT, keys.prefix, number, author, payload)
    try:
        await store.create(keys.checkpoint(number), data)
    except ExistsError:
        # Ours, if an earlier attempt landed: then it names what we uploaded, and so counts as won.
        return await read_checkpoint(store, keys, number) == payload
    return True
