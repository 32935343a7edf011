"""Roll-ups: rewrite the untiered slices of a stream's oldest objects, sorted by partition.

A roll-up belongs to one checkpoint and has its number in the key; the next checkpoint rewrites what
is still untiered then. So a slow partition does not keep old objects alive, and the keys and the
greatest checkpoint suffice to find what may be deleted.

The owner of a live stream rolls it up when it exceeds its limits; after a seal, any successor does,
up to the stream's end. Several processes may do so at once: one checkpoint is created, and the next
trim removes the other roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

from neve import runtime
from neve.errors import InvalidError, NotFoundError
from neve.log.create import create_own
from neve.log.keys import new_rollup_key, rollup_checkpoint
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import WalCheckpoint, read_checkpoint, write_checkpoint
from neve.log.wal.object import AUTHOR_BYTES, Kind, Slice, SliceMeta
from neve.log.wal.reader import PartitionId, StreamTail, TailObject, WalReader, next_offsets
from neve.store.deletion import DELETES_BESIDE_CLIENTS, delete_all
from neve.store.port import Buffer, Store

# Returns the offset up to which won manifest numbers tiered a partition.
# None: the partition is gone and its records are dropped.
TieredOffset = Callable[[bytes, int], int | None]
# Returns whether won manifest numbers gave a whole slice up for lost.
GivenUp = Callable[[Slice], bool]
ReadSlice = Callable[[TailObject, Slice], Coroutine[None, None, memoryview]]

# A roll-up is built in memory, so this limits the memory; a checkpoint may name several.
ROLLUP_BYTES_MAX = 16 * 1024 * 1024
# Objects read concurrently. Almost all of each may be read for a few slices.
READ_OBJECTS = 8
# Slices read concurrently with the caller's `read`: each is a task, and there may be 100,000.
READ_SLICES = 500


async def roll_up(
    store: Store,
    reader: WalReader,
    tail: StreamTail,
    upto: int,
    tiered: TieredOffset,
    *,
    read: ReadSlice | None = None,
    given_up: GivenUp = lambda _: False,
) -> list[TailObject] | None:
    """Write a checkpoint at `upto`. Returns its roll-ups, or None if another checkpoint was first.

    Every number below `upto` must be committed, and `tail` must hold all of them. `tiered` is
    called once per partition; slices entirely below its result are left out. `read` is for a caller
    that has slices in memory. Slices that are `given_up` are left out too, so that skipped damage
    does not prevent roll-ups.
    """
    covered = _covered(reader, tail, upto)
    ends = next_offsets(tail.ends, covered)
    known = {partition: tiered(*partition) for partition in sorted(ends)}
    # In a thread, because there may be 100,000 slices.
    parts = await runtime.offload(_planned, covered, known, given_up)
    try:
        rollups = [await _upload(store, reader, upto, part, read) for part in parts]
    except NotFoundError:
        if await greatest_checkpoint(store, reader.keys, above=tail.checkpoint) is None:
            raise
        return None  # another checkpoint was first, and a trim removed the objects below it
    partitions = tuple(row for name, row in sorted(ends.items()) if known[name] is not None)
    payload = WalCheckpoint(tuple(item.key for item in rollups), partitions)
    won = await write_checkpoint(store, reader.keys, upto, payload)
    return rollups if won else None


def _covered(reader: WalReader, tail: StreamTail, upto: int) -> list[TailObject]:
    """Return the objects that a checkpoint at `upto` replaces.

    Raises InvalidError unless all of them are in the tail: their records would be lost.
    """
    covered = [item for item in tail.objects if item.number is None or item.number < upto]
    numbers = [item.number for item in covered if item.number is not None]
    expected = list(range(tail.checkpoint, upto))
    if not expected or upto > tail.position or numbers != expected or not tail.from_checkpoint:
        raise InvalidError(
            f"{reader.keys.prefix}: a tail from {tail.checkpoint} to {tail.position} does not hold "
            f"all that a checkpoint at {upto} sums up: read the stream's tail again"
        )
    return covered


async def trim(store: Store, reader: WalReader, *, end: int | None = None) -> int:
    """Delete what the greatest checkpoint makes superfluous. Returns the number of objects.

    These are numbers and checkpoints below it, and roll-ups made for a lower one, or for this one
    without being named by it. If the stream's `end` is given, seals above it are deleted too. The
    end seal and the greatest checkpoint are never deleted.
    """
    keys = reader.keys
    greatest = await greatest_checkpoint(store, keys)
    payload = await read_checkpoint(store, keys, greatest) if greatest is not None else None
    if greatest is None or payload is None:
        return 0
    named = set(payload.rollups)

    def superfluous(key: str) -> bool:
        number = keys.number_of(key)
        if number is not None:
            return number < greatest or (end is not None and number > end)
        checkpoint = keys.checkpoint_of(key)
        if checkpoint is not None:
            return checkpoint < greatest
        made_for = rollup_checkpoint(keys, key)
        return made_for is not None and (
            made_for < greatest or (made_for == greatest and key not in named)
        )

    doomed = [row.key for row in await store.list(keys.prefix) if superfluous(row.key)]
    await delete_all(store, doomed, at_once=DELETES_BESIDE_CLIENTS)
    return len(doomed)


UntieredSlice = tuple[TailObject, Slice]


def _untiered(
    objects: Iterable[TailObject], tiered: Mapping[PartitionId, int | None]
) -> list[UntieredSlice]:
    untiered: list[UntieredSlice] = []
    for item in objects:
        for entry in item.slices:
            offset = tiered[entry.topic_id, entry.partition]
            if offset is not None and entry.last_offset >= offset:
                untiered.append((item, entry))
    return sorted(untiered, key=lambda row: (row[1].topic_id, row[1].partition, row[1].base_offset))


def _planned(
    objects: Iterable[TailObject],
    tiered: Mapping[PartitionId, int | None],
    given_up: GivenUp,
) -> list[list[UntieredSlice]]:
    """Return the slices of each roll-up."""
    untiered = [row for row in _untiered(objects, tiered) if not given_up(row[1])]
    return _split(untiered, ROLLUP_BYTES_MAX)


def _split(untiered: list[UntieredSlice], bytes_max: int) -> list[list[UntieredSlice]]:
    parts: list[list[UntieredSlice]] = []
    size = 0
    for row in untiered:
        if not parts or size + row[1].length > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += row[1].length
    return parts


async def _upload(
    store: Store, reader: WalReader, upto: int, part: list[UntieredSlice], read: ReadSlice | None
) -> TailObject:
    if read is None:
        datas = await _read_by_object(reader, part)
    else:
        datas = []
        for start in range(0, len(part), READ_SLICES):
            some = part[start : start + READ_SLICES]
            datas += await runtime.gather(*(read(item, entry) for item, entry in some))
    key = new_rollup_key(reader.keys, upto)
    data, slices = await runtime.offload(_encode, part, datas, reader.incarnation, upto)
    await create_own(store, key, data)
    return TailObject(key, None, slices, None)


def _encode(
    part: list[UntieredSlice], datas: Sequence[Buffer], incarnation: int, upto: int
) -> tuple[memoryview, tuple[Slice, ...]]:
    encoded = wal_object.encode(
        Kind.ROLLUP,
        _joined([entry for _, entry in part], datas),
        incarnation=incarnation,
        number=upto,
        author=runtime.token(AUTHOR_BYTES),
        created_ms=runtime.now_ms(),
    )
    return encoded.data, encoded.slices


async def _read_by_object(reader: WalReader, part: list[UntieredSlice]) -> list[Buffer]:
    """Read the slices of a part object by object, so that many partitions share a request."""
    places: dict[str, list[int]] = {}
    for place, (item, _) in enumerate(part):
        places.setdefault(item.key, []).append(place)
    datas: list[Buffer] = [b""] * len(part)

    async def read(at: list[int]) -> None:
        found = await reader.slices_data(part[at[0]][0], [part[place][1] for place in at])
        for place, data in zip(at, found, strict=True):
            datas[place] = bytes(data)  # a copy, so that the bytes read in between are freed

    objects = list(places.values())
    for start in range(0, len(objects), READ_OBJECTS):
        await runtime.gather(*map(read, objects[start : start + READ_OBJECTS]))
    return datas


def _joined(entries: list[Slice], datas: Sequence[Buffer]) -> list[tuple[SliceMeta, list[Buffer]]]:
    """Join neighbouring slices of one partition and epoch."""
    rows: list[tuple[SliceMeta, list[Buffer]]] = []
    for entry, data in zip(entries, datas, strict=True):
        if not rows or not _continues(rows[-1][0], entry):
            rows.append((SliceMeta(*entry[:6]), [data]))
            continue
        meta, parts = rows[-1]
        parts.append(data)
        rows[-1] = (
            meta._replace(
                last_offset=entry.last_offset,
                max_timestamp=max(meta.max_timestamp, entry.max_timestamp),
            ),
            parts,
        )
    return rows


def _continues(meta: SliceMeta, entry: Slice) -> bool:
    return (
        meta.topic_id == entry.topic_id
        and meta.partition == entry.partition
        and meta.leader_epoch == entry.leader_epoch
        and meta.last_offset + 1 == entry.base_offset
    )
