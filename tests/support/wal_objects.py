"""Objects of a WAL stream, written without a writer: data, seals, roll-ups and checkpoints."""

from __future__ import annotations

from neve.log.keys import new_rollup_key, wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import (
    PartitionEnd,
    WalCheckpoint,
    write_checkpoint,
)
from neve.log.wal.object import Kind, SliceMeta
from neve.log.wal.reader import WalReader
from support.scripted_store import ScriptedStore
from support.wal_batches import TOPIC, batch, meta

INCARNATION = 5


KEYS = wal_stream(INCARNATION)


Rows = list[tuple[SliceMeta, list[bytes]]]


def rows_of(*at: int, partition: int = 0, size: int = 100) -> Rows:
    """One slice that holds these offsets, a batch each."""
    span = meta(at[0], partition=partition)._replace(last_offset=at[-1], max_timestamp=at[-1])
    return [(span, [batch(offset, size) for offset in at])]


def encoded(kind: Kind, number: int, rows: Rows) -> bytes:
    return wal_object.encode(
        kind,
        rows,
        incarnation=INCARNATION,
        number=number,
        author=b"author..........",
        created_ms=0,
    ).data


async def put_data(store: ScriptedStore, number: int, rows: Rows | None = None) -> None:
    data = encoded(Kind.DATA, number, rows or rows_of(number))
    await store.put(KEYS.number(number), data)


async def put_seal(store: ScriptedStore, number: int) -> None:
    await store.put(KEYS.number(number), encoded(Kind.SEAL, number, []))


async def put_rollup(store: ScriptedStore, checkpoint: int, rows: Rows) -> str:
    key = new_rollup_key(KEYS, checkpoint)
    await store.put(key, encoded(Kind.ROLLUP, checkpoint, rows))
    return key


async def put_checkpoint(store: ScriptedStore, number: int, *rollups: str) -> None:
    ends = (PartitionEnd(TOPIC.hex(), 0, 0, number),)
    assert await write_checkpoint(store, KEYS, number, WalCheckpoint(rollups, ends))


async def stream(store: ScriptedStore, count: int) -> WalReader:
    for number in range(count):
        await put_data(store, number)
    return WalReader(store, INCARNATION)
