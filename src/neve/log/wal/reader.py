"""Reads a WAL stream: the checkpoint, its roll-ups, then numbers in order up to the first gap.

Objects after a missing number or a seal are not committed and are ignored, even if they were
downloaded. A read is valid only after a check of the greatest checkpoint; if that moved above what
was read, the reader starts again from it. So two readers may reach different positions, but never
see different content.
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
from neve.log.downloads import Download, fetch_checked, fetch_prefix_checked, fetch_range_checked
from neve.log.keys import SeriesKeys, wal_stream
from neve.log.prefetch import PrefetchReader
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import PartitionEnd, WalCheckpoint, read_checkpoint
from neve.log.wal.directories import DirectoryCache
from neve.log.wal.object import Kind, Slice, WalObject
from neve.settings import PrefetchSettings
from neve.store.port import Store

# One ranged get of this size returns the directory of a thousand slices, or a whole small object.
DIRECTORY_READ_BYTES = 64 * 1024
# Total bytes that one read of a tail keeps of objects that such gets returned whole.
TAIL_DATA_BYTES_MAX = 32 * 1024 * 1024
# An object of more than this is not read whole before its header and directory are checked.
WHOLE_BYTES_MAX = 2 * TAIL_DATA_BYTES_MAX
# Numbers that one read continues past the end as listed at its start. Without a limit, a reader
# that is slower than a live writer would never reach the end.
READ_ON_NUMBERS_MAX = 64
# Restarts from a new checkpoint before a read gives up.
RESTARTS_MAX = 100


class TailObject(NamedTuple):
    """One object of a stream's tail: a number, or a roll-up (`number` is None).

    `data` is set if the whole object was read.
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
    """The committed content of a stream: its checkpoint's roll-ups, and the numbers from there on.

    `position` is the first number not in it; if `sealed`, it is the stream's end. `more` returns a
    tail that begins at the position of the one before, with `from_checkpoint` unset.
    """

    incarnation: int
    checkpoint: int
    position: int
    sealed: bool
    objects: tuple[TailObject, ...]
    ends: Mapping[PartitionId, PartitionEnd] = field(default_factory=dict)
    from_checkpoint: bool = True

    def of(self, topic_id: bytes, partition: int) -> Iterator[tuple[TailObject, Slice]]:
        """Yield one partition's slices, in the order of their offsets."""
        yield from self._by_partition.get((topic_id, partition), ())

    @functools.cached_property
    def _by_partition(self) -> dict[PartitionId, list[tuple[TailObject, Slice]]]:
        # A walk through all slices for each of thousands of partitions would take far too long.
        found: dict[PartitionId, list[tuple[TailObject, Slice]]] = {}
        for item in self.objects:
            for entry in item.slices:
                found.setdefault((entry.topic_id, entry.partition), []).append((item, entry))
        return found


class _Seal(NamedTuple):
    number: int


# Objects in order, the first number not among them, and whether that number is a seal.
_Read = tuple[list[TailObject], int, bool]


class WalReader:
    """Reads one stream. It keeps no state: the returned tails have everything that was read.

    A caller that reads the same streams repeatedly passes `known`, to read only new objects.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        prefetch: PrefetchSettings | None = None,
        known: DirectoryCache[TailObject] | None = None,
        data_bytes_max: int = TAIL_DATA_BYTES_MAX,
    ) -> None:
        self._store = store
        self._data_bytes_max = data_bytes_max
        self._known = known
        self._prefetch = prefetch or PrefetchSettings()
        self.incarnation = incarnation
        self.keys: SeriesKeys = wal_stream(incarnation)

    async def tail(self, *, whole: bool = False) -> StreamTail:
        """Read the stream from its greatest checkpoint to the first missing number or seal.

        With `whole`, objects are read completely; otherwise only their directories.
        """
        for _ in range(RESTARTS_MAX):
            number = await greatest_checkpoint(self._store, self.keys) or 0
            try:
                loaded = await self._from_checkpoint(number, whole=whole)
                if loaded is None:
                    continue  # a greater checkpoint replaced this one during the read
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
        """Return what was committed since `tail`, at most READ_ON_NUMBERS_MAX numbers.

        Returns None if a checkpoint has passed the position of `tail`: resolve again.
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

    async def number(self, number: int) -> tuple[TailObject | None, bool]:
        """Read one number whole, for a reader that has read all numbers before it.

        Returns no object if the number is a seal, or does not exist: then it may not be written
        yet, or be below a checkpoint. The second result is whether it is a seal.
        """
        item = await self._number(self._store, number=number, whole=True)
        return (None, True) if isinstance(item, _Seal) else (item, False)

    async def end(self) -> tuple[int, int] | None:
        """Return a sealed stream's end and its greatest checkpoint; None if it is not sealed.

        Roll-ups are not read, so this works on a stream whose records are all tiered.
        """
        for _ in range(RESTARTS_MAX):
            number = await greatest_checkpoint(self._store, self.keys) or 0
            _, position, sealed = await self._listed_numbers(number, whole=False)
            if await greatest_checkpoint(self._store, self.keys, above=number) is None:
                return (position, number) if sealed else None
        raise UnavailableError(self.keys.prefix, "it is checkpointed faster than it can be read")

    async def slice_data(self, item: TailObject, entry: Slice) -> memoryview:
        """Read and check the batches of one slice.

        Raises NotFoundError if the slice was rolled up or tiered: resolve again.
        """
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
        """Read and check several slices of one object. Nearby slices share a request."""
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
        """Read numbers in order from `start`, with read-ahead for those that a listing shows.

        The listing only decides what to download early. The result depends on the objects as they
        are when they are read: those downloaded after a gap or a seal are ignored.
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
                fits = whole or kept_bytes <= self._data_bytes_max
                objects.append(item if fits else item.without_data())
        more, position, sealed = await self._numbers_from(start + len(objects), whole=whole)
        return [*objects, *more], position, sealed

    def _remembered(self, start: int, listed: Mapping[int | None, int]) -> list[TailObject]:
        """Return the first listed numbers, as far as they are all in the cache."""
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
        """Read some numbers in order from `start`, one at a time, for a reader near the end."""
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
        """Read header and directory; also returns the data if the whole object was read."""

        def decode_whole(data: memoryview) -> tuple[WalObject, memoryview | None]:
            decoded = wal_object.decode(
                data, key, incarnation=self.incarnation, number=number, rollup=rollup
            )
            return decoded, data

        if whole:
            # If a slice is damaged, or the object is very large, read only the directory: the
            # slices are then read on demand, and damage affects only its own partition.
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
    """Return whether a read of the directory also returned all slices, undamaged."""
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
    """Return every partition's next offset after these objects, for the next checkpoint."""
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
