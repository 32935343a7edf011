"""Reading a WAL stream: the checkpoint, its roll-ups, then numbers in order up to the first gap.

What lies beyond a missing number or a seal is neither committed nor closed and is thrown away,
even if it was fetched. A read is valid only after a check of the greatest checkpoint;
where that moved above what was read, the reader starts again from it. So two readers differ only
in how far along they are, never in content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from neve import runtime
from neve.errors import DamagedError, NotFoundError, UnavailableError
from neve.log.fetch import Download, fetch_checked, fetch_prefix_checked, fetch_range_checked
from neve.log.keys import SeriesKeys, wal_stream
from neve.log.prefetch import PrefetchReader
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import PartitionEnd, WalCheckpoint, read_checkpoint
from neve.log.wal.directories import DirectoryCache
from neve.log.wal.object import Kind, Slice, WalObject
from neve.settings import PrefetchSettings
from neve.store.port import Store

# One ranged get of this size brings the directory of a thousand slices, or a small object whole.
DIRECTORY_READ_BYTES = 64 * 1024
# Bytes that one read of a tail keeps of objects that such a get returned whole.
TAIL_DATA_BYTES_MAX = 32 * 1024 * 1024
# An object of more than this is not read whole before its header and directory are checked.
WHOLE_BYTES_MAX = 2 * TAIL_DATA_BYTES_MAX
# How far one read goes beyond the end at its start: a live writer may be faster than the reader,
# which then would never reach the end.
READ_ON_NUMBERS_MAX = 64
# Restarts from a new checkpoint before a read gives up.
RESTARTS_MAX = 100


class TailObject(NamedTuple):
    """One object of a stream's tail: a number, or a roll-up (`number` is None).

    `data` is there where the whole object has been read.
    """

    key: str
    number: int | None
    slices: tuple[Slice, ...]
    data: memoryview | None

    def without_data(self) -> TailObject:
        return self._replace(data=None)


PartitionId = tuple[bytes, int]


@dataclass(frozen=True)
class StreamTail:
    """All of a stream that is committed and not behind its checkpoint, as once read.

    `position` is the first number not in it; `sealed` says that it is the stream's end. What `more`
    gives begins where its reader was, not at the checkpoint.
    """

    incarnation: int
    checkpoint: int
    position: int
    sealed: bool
    objects: tuple[TailObject, ...]
    ends: Mapping[PartitionId, PartitionEnd] = field(default_factory=dict)
    from_checkpoint: bool = True

    def of(self, topic_id: bytes, partition: int) -> Iterator[tuple[TailObject, Slice]]:
        """One partition's slices, in the order of their offsets."""
        yield from self._by_partition.get((topic_id, partition), ())

    @functools.cached_property
    def _by_partition(self) -> dict[PartitionId, list[tuple[TailObject, Slice]]]:
        # Asked for each of thousands of partitions, a walk through all slices would never end.
        found: dict[PartitionId, list[tuple[TailObject, Slice]]] = {}
        for item in self.objects:
            for entry in item.slices:
                found.setdefault((entry.topic_id, entry.partition), []).append((item, entry))
        return found


class _Seal(NamedTuple):
    number: int


# Objects in order, the first number not among them, and whether a seal stands there.
_Read = tuple[list[TailObject], int, bool]


class WalReader:
    """Reads one stream. Holds no state: what was read is in the tails that it gives out.

    A caller that reads the same streams again passes `known`, and reads only what is new.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        prefetch: PrefetchSettings | None = None,
        known: DirectoryCache[TailObject] | None = None,
    ) -> None:
        self._store = store
        self._known = known
        self._prefetch = prefetch or PrefetchSettings()
        self.incarnation = incarnation
        self.keys: SeriesKeys = wal_stream(incarnation)

    async def tail(self, *, whole: bool = False) -> StreamTail:
        """The stream from its greatest checkpoint to the first number that is missing or a seal.

        With `whole`, objects are read to their last byte; otherwise their directories only.
        """
        for _ in range(RESTARTS_MAX):
            number = await greatest_checkpoint(self._store, self.keys) or 0
            try:
                loaded = await self._from_checkpoint(number, whole=whole)
                if loaded is None:
                    continue  # a greater checkpoint replaced this one as we read
                ends, rollups = loaded
                objects, position, sealed = await self._listed_numbers(number, whole=whole)
            except DamagedError:
                if await self._replaced(number):
                    continue  # the damaged object is below the greatest checkpoint
                raise
            if await self._replaced(number):
                continue
            return StreamTail(
                self.incarnation, number, position, sealed, (*rollups, *objects), ends
            )
        raise UnavailableError(self.keys.prefix, "it is checkpointed faster than it can be read")

    async def more(self, tail: StreamTail, *, whole: bool = False) -> StreamTail | None:
        """What was committed since `tail`, as a tail of its own: all of it, or a good deal.

        None where a checkpoint has passed where it was: the reader must resolve again.
        """
        if tail.sealed:
            return dataclasses.replace(tail, objects=(), ends={}, from_checkpoint=False)
        objects, position, sealed = await self._numbers_from(tail.position, whole=whole)
        if await self._replaced(tail.position):
            return None
        return StreamTail(
            tail.incarnation,
            tail.checkpoint,
            position,
            sealed,
            tuple(objects),
            from_checkpoint=False,
        )

    async def end(self) -> tuple[int, int] | None:
        """Where a sealed stream ends, and its greatest checkpoint; None where it is not sealed.

        Roll-ups are not read, so this works on a stream whose records are all tiered.
        """
        for _ in range(RESTARTS_MAX):
            number = await greatest_checkpoint(self._store, self.keys) or 0
            _, position, sealed = await self._listed_numbers(number, whole=False)
            if await greatest_checkpoint(self._store, self.keys, above=number) is None:
                return (position, number) if sealed else None
        raise UnavailableError(self.keys.prefix, "it is checkpointed faster than it can be read")

    async def slice_data(self, item: TailObject, entry: Slice) -> memoryview:
        """The batches of one slice, checked. NotFoundError: it was rolled up or tiered; resolve."""
        if item.data is not None:
            return item.data[entry.position : entry.end]
        return await fetch_range_checked(
            self._store,
            item.key,
            entry.position,
            entry.end,
            lambda data: wal_object.slice_bytes(entry, data, item.key),
        )

    async def slices_data(self, item: TailObject, entries: Sequence[Slice]) -> list[memoryview]:
        """Several slices of one object, checked, in as few requests as they lie apart."""
        if item.data is not None:
            return [item.data[entry.position : entry.end] for entry in entries]
        ranges = [(entry.position, entry.end) for entry in entries]
        datas = await self._store.get_ranges(item.key, ranges)
        try:
            return [
                wal_object.slice_bytes(entry, data, item.key)
                for entry, data in zip(entries, datas, strict=True)
            ]
        except DamagedError:  # one by one, to distinguish a torn read from damage
            return [await self.slice_data(item, entry) for entry in entries]

    async def _from_checkpoint(
        self, number: int, *, whole: bool
    ) -> tuple[dict[PartitionId, PartitionEnd], list[TailObject]] | None:
        if number == 0:
            return {}, []
        payload = await read_checkpoint(self._store, self.keys, number)
        if payload is None:
            if await self._replaced(number):
                return None
            raise DamagedError(
                self.keys.checkpoint(number), "the stream's greatest checkpoint is not there"
            )
        try:
            rollups = await runtime.gather(
                *(self._rollup(key, number, whole=whole) for key in payload.rollups)
            )
        except NotFoundError as error:
            if await self._replaced(number):
                return None
            raise DamagedError(
                error.key, f"checkpoint {number} of stream {self.incarnation} names it; it is gone"
            ) from error
        return _ends(payload), rollups

    async def _replaced(self, number: int) -> bool:
        return await greatest_checkpoint(self._store, self.keys, above=number) is not None

    async def _rollup(self, key: str, number: int, *, whole: bool) -> TailObject:
        decoded, data = await self._object(self._store, key, number, whole=whole, rollup=True)
        return TailObject(key, None, decoded.slices, data)

    async def _listed_numbers(self, start: int, *, whole: bool) -> _Read:
        """Numbers in order from `start`, read ahead as far as a listing shows them.

        The listing only says what to download early. What counts is what is there when it is read,
        in order: what was downloaded beyond a gap or a seal is thrown away.
        """
        rows = await self._store.list(self.keys.prefix, self._before(start))
        sizes = {self.keys.number_of(row.key): row.size for row in rows}
        objects = [] if whole else self._remembered(start, sizes)

        def downloads() -> Iterator[Download[TailObject | _Seal | None]]:
            number = start + len(objects)
            while number in sizes:
                size = sizes[number] if whole else min(sizes[number], DIRECTORY_READ_BYTES)
                fetch = functools.partial(self._number, number=number, whole=whole)
                yield Download(key=self.keys.number(number), size_bytes=size, fetch=fetch)
                number += 1

        kept_bytes = 0
        async with PrefetchReader(self._store, self._prefetch) as ahead:
            async for _, item in ahead.read(downloads()):
                if item is None or isinstance(item, _Seal):
                    return objects, start + len(objects), item is not None
                kept_bytes += 0 if item.data is None else len(item.data)
                fits = whole or kept_bytes <= TAIL_DATA_BYTES_MAX
                objects.append(item if fits else item.without_data())
        more, position, sealed = await self._numbers_from(start + len(objects), whole=whole)
        return [*objects, *more], position, sealed

    def _remembered(self, start: int, listed: Mapping[int | None, int]) -> list[TailObject]:
        """Those at the beginning that are known and still there."""
        found: list[TailObject] = []
        while self._known is not None and start + len(found) in listed:
            item = self._known.get(self.keys.number(start + len(found)))
            if item is None:
                break
            found.append(item)
        return found

    def _before(self, number: int) -> str:
        return self.keys.number(number - 1) if number > 0 else ""

    async def _numbers_from(self, start: int, *, whole: bool) -> _Read:
        """Some numbers in order from `start`, one at a time: for a reader that is near the end."""
        objects: list[TailObject] = []
        while len(objects) < READ_ON_NUMBERS_MAX:
            item = await self._number(self._store, number=start + len(objects), whole=whole)
            if item is None or isinstance(item, _Seal):
                return objects, start + len(objects), item is not None
            objects.append(item)
        return objects, start + len(objects), False

    async def _number(self, store: Store, *, number: int, whole: bool) -> TailObject | _Seal | None:
        key = self.keys.number(number)
        try:
            decoded, data = await self._object(store, key, number, whole=whole)
        except NotFoundError:
            return None
        if decoded.header.kind is Kind.SEAL:
            return _Seal(number)
        item = TailObject(key, number, decoded.slices, data)
        if self._known is not None and not whole:
            self._known.put(key, item)
        return item

    async def _object(
        self, store: Store, key: str, number: int, *, whole: bool, rollup: bool = False
    ) -> tuple[WalObject, memoryview | None]:
        """Header and directory, and the data where all of it was read."""

        def decode_whole(data: memoryview) -> tuple[WalObject, memoryview | None]:
            decoded = wal_object.decode(
                data, key, incarnation=self.incarnation, number=number, rollup=rollup
            )
            return decoded, data

        if whole:
            # A damaged slice fails the readers of its own partition only. A very large object is
            # read slice by slice, on demand.
            with contextlib.suppress(DamagedError):
                return await fetch_checked(store, key, WHOLE_BYTES_MAX, decode_whole)
        return await self._directory(store, key, number, rollup=rollup)

    async def _directory(
        self, store: Store, key: str, number: int, *, rollup: bool
    ) -> tuple[WalObject, memoryview | None]:
        wanted = DIRECTORY_READ_BYTES

        def decode(data: memoryview) -> tuple[WalObject, memoryview | None] | int:
            header = wal_object.decode_header(
                data, key, incarnation=self.incarnation, number=number, rollup=rollup
            )
            needed = wal_object.directory_bytes(header)
            if len(data) < needed and wanted < needed:
                return needed
            found = wal_object.decode_directory(
                data, key, incarnation=self.incarnation, number=number, rollup=rollup
            )
            return found, data if _is_whole(found, data, key) else None

        decoded = await fetch_prefix_checked(store, key, wanted, decode)
        if isinstance(decoded, int):
            wanted = decoded
            decoded = await fetch_prefix_checked(store, key, wanted, decode)
        if isinstance(decoded, int):
            raise DamagedError(key, f"its directory is of {decoded} bytes now, and was of {wanted}")
        return decoded


def _is_whole(found: WalObject, data: memoryview, key: str) -> bool:
    """Whether a read that was to bring the directory has brought all slices too, undamaged."""
    if len(data) != wal_object.object_bytes(found.header):
        return False
    try:
        for entry in found.slices:
            wal_object.slice_bytes(entry, data[entry.position : entry.end], key)
    except DamagedError:
        return False
    return True


def _ends(payload: WalCheckpoint) -> dict[PartitionId, PartitionEnd]:
    return {(bytes.fromhex(row.topic_id), row.partition): row for row in payload.partitions}


def next_offsets(
    ends: Mapping[PartitionId, PartitionEnd], objects: Sequence[TailObject]
) -> dict[PartitionId, PartitionEnd]:
    """Every partition's next offset after these objects, as the next checkpoint keeps it."""
    after = dict(ends)
    for item in objects:
        for entry in item.slices:
            key = (entry.topic_id, entry.partition)
            known = after.get(key)
            if known is None or entry.last_offset >= known.next:
                after[key] = PartitionEnd(
                    entry.topic_id.hex(), entry.partition, entry.leader_epoch, entry.last_offset + 1
                )
    return after
