"""Roll-ups: what is still untiered in a stream's oldest objects, rewritten into one, by partition.

A roll-up is made for one checkpoint, carries its number in its key, and is named by no other: the
next checkpoint rewrites what is still untiered. So a slow partition pins nothing, and the keys and
the greatest checkpoint alone show what may be deleted.

The owner of a live stream does this past its bounds; after a seal, any successor does it up to the
stream's end. Several at once are harmless: one checkpoint is created, the other roll-ups are waste
that the next trim removes.
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

# The offset up to which a partition is tiered by a manifest number that was won.
# None: the partition is gone and its records are dropped.
TieredOffset = Callable[[bytes, int], int | None]
# Whether all of a slice was given up for lost by a manifest number that was won.
GivenUp = Callable[[Slice], bool]
ReadSlice = Callable[[TailObject, Slice], Coroutine[None, None, memoryview]]

# A roll-up is built in memory, so this bounds what building one takes; a checkpoint names several.
ROLLUP_BYTES_MAX = 16 * 1024 * 1024
# Objects read at once. They may be read nearly whole to find a few slices in each.
READ_OBJECTS = 8
# Slices read at once through the caller's `read`: each is a task, and there may be 100,000.
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
    """Checkpoint a stream at `upto`; its roll-ups, or None where another's checkpoint was first.

    Every number below `upto` must be committed, and `tail` must hold all of them. `tiered` is asked
    once per partition, and only what won manifest numbers cover may be left out. `read` is for a
    caller that has slices in memory. Slices that are `given_up` are left out, so that skipped
    damage blocks nothing.
    """
    covered = _covered(reader, tail, upto)
    ends = next_offsets(tail.ends, covered)
    known = {partition: tiered(*partition) for partition in sorted(ends)}
    # Beside the event loop: there may be 100,000 slices.
    parts = await runtime.offload(_planned, covered, known, given_up)
    try:
        rollups = [await _upload(store, reader, upto, part, read) for part in parts]
    except NotFoundError:
        if await greatest_checkpoint(store, reader.keys, above=tail.checkpoint) is None:
            raise
        return None  # another checkpoint was first and its objects are trimmed
    partitions = tuple(row for name, row in sorted(ends.items()) if known[name] is not None)
    payload = WalCheckpoint(tuple(item.key for item in rollups), partitions)
    won = await write_checkpoint(store, reader.keys, upto, payload)
    return rollups if won else None


def _covered(reader: WalReader, tail: StreamTail, upto: int) -> list[TailObject]:
    """What a checkpoint at `upto` has to sum up. All of it must be in the tail, or it is lost."""
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
    """Delete what the greatest checkpoint makes superfluous; how many objects went.

    Numbers below it, checkpoints below it, and roll-ups made for a lower one, or for this one
    without being named by it. Seals above the stream's `end` go too, where the end is known; the
    end seal and the greatest checkpoint never do.
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
    """What each roll-up is to hold."""
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
    """The slices of a part, read object by object: requests do not grow with the partitions."""
    places: dict[str, list[int]] = {}
    for place, (item, _) in enumerate(part):
        places.setdefault(item.key, []).append(place)
    datas: list[Buffer] = [b""] * len(part)

    async def read(at: list[int]) -> None:
        found = await reader.slices_data(part[at[0]][0], [part[place][1] for place in at])
        for place, data in zip(at, found, strict=True):
            datas[place] = bytes(data)  # a copy, so that what was read between them is let go

    objects = list(places.values())
    for start in range(0, len(objects), READ_OBJECTS):
        await runtime.gather(*map(read, objects[start : start + READ_OBJECTS]))
    return datas


def _joined(entries: list[Slice], datas: Sequence[Buffer]) -> list[tuple[SliceMeta, list[Buffer]]]:
    """Neighbouring slices of one partition and epoch become one."""
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
