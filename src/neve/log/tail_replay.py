"""Replays the tails of partitions: folds their history, and fills the cache with their bytes.

A new leader must know the producers of a partition up to the last committed batch, so it walks the
batches of the tail once. The prefetching reader downloads them in the order of offsets for each
partition; slices of several partitions that are close together share a request. The bytes then go
to a cache that counts them, and may drop them at once.

What a follower of the stream has in memory already is not downloaded.

A damaged slice does not fail the take-over: which producers wrote it is unknown, so all producers
are forgotten, and the next batch of each is treated as that of an unknown producer.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from neve.errors import DamagedError, NotFoundError
from neve.log.cached_slice import CachedObject
from neve.log.downloads import ATTEMPTS_DEFAULT, PART_BYTES_DEFAULT, Download, read_range
from neve.log.prefetch import PrefetchReader
from neve.log.segment.history import History
from neve.log.tail import PartitionTail, TailSlice
from neve.log.wal import object as wal_object
from neve.log.wal.object import Slice
from neve.log.wal.reader import StreamTail, TailObject
from neve.records.batch import check_header
from neve.settings import MIB, PrefetchSettings
from neve.store.port import Store

# A gap of unneeded bytes is read if that saves a request: a request takes some 15 ms, in which a
# connection transfers about this much.
GAP_BYTES_MAX = MIB

# Base offset, length and producer id: enough to pass over a batch of no idempotent producer.
_GLANCE = struct.Struct(">qi31xq")
_LENGTH_END = 12


# Returns slices in memory with exactly the records of a slice of a stream; None if there are none.
Covering: TypeAlias = Callable[[int, Slice], "list[tuple[Slice, memoryview]] | None"]


def not_in_memory(incarnation: int, entry: Slice) -> None:
    """Know nothing: every slice is read from the store."""
    del incarnation, entry


class TailReplay:
    """One partition's tail while it is read.

    `history` is the history at offset `at`, and after the replay that at the tail's end.
    """

    def __init__(self, name: str, tail: PartitionTail, history: History, at: int) -> None:
        self.tail = tail
        self.history = history
        self.in_memory: list[tuple[CachedObject, Slice]] = []
        self.missing: NotFoundError | None = None
        self._name = name
        self._due = at

    def take(self, entry: Slice, data: memoryview, key: str) -> None:
        """Fold the batches of the next slice into the history."""
        self._begin(entry)
        position, end = 0, len(data)
        while position < end:
            base_offset, length, producer_id = _GLANCE.unpack_from(data, position)
            size = length + _LENGTH_END
            if producer_id >= 0 and base_offset >= self._due:
                header = check_header(data, position, key=key)
                self.history.observe(header, data[position : position + size])
            position += size
        self._due = max(self._due, entry.last_offset + 1)

    def _begin(self, entry: Slice) -> None:
        """Note the epoch of a slice: all its batches have it, including those passed over."""
        if entry.last_offset >= self._due:
            self.history.epochs.begin(entry.leader_epoch, max(entry.base_offset, self._due))

    def give_up(self, entry: Slice) -> None:
        """Pass over a damaged slice. Forget all producers, since those of the slice are unknown."""
        self._begin(entry)
        self.history = History(self._name, (), self.history.epochs.starts)
        self._due = max(self._due, entry.last_offset + 1)


class _SliceToRead(NamedTuple):
    replay: TailReplay
    entry: Slice


class _Stretch(NamedTuple):
    """Slices of one object that one request reads, or one slice that is in memory as `covering`."""

    incarnation: int
    item: TailObject
    wanted: tuple[_SliceToRead, ...]
    covering: tuple[tuple[Slice, memoryview], ...] = ()

    @property
    def start(self) -> int:
        return self.wanted[0].entry.position

    @property
    def end(self) -> int:
        return self.wanted[-1].entry.end


class _Read(NamedTuple):
    stretch: _Stretch
    data: memoryview
    damaged: tuple[Slice, ...] = ()
    missing: NotFoundError | None = None


async def replay_tails(
    store: Store,
    replays: Sequence[TailReplay],
    tails: Mapping[int, StreamTail],
    prefetch: PrefetchSettings,
    keep: Callable[[CachedObject], None],
    *,
    covering: Covering = not_in_memory,
) -> None:
    """Run each replay to its tail's end, or set its `missing` to the error of a missing object.

    `keep` gets each object that was read, and may drop its bytes.
    """
    rounds = [_by_stream(replay.tail.slices) for replay in replays]
    # A tail may be in several streams, one after the other, and two partitions may have them in
    # opposite orders. So read the first stream of each partition, then the second, and so on.
    for parts in itertools.zip_longest(*rounds):
        wanted = [
            (row, replay) for replay, rows in zip(replays, parts, strict=True) for row in rows or ()
        ]
        stretches = _stretches(wanted, tails, covering)
        async with PrefetchReader(store, prefetch) as ahead:
            async for _, read in ahead.read(map(_download, stretches)):
                _take(read, keep)


def _by_stream(slices: Sequence[TailSlice]) -> list[list[TailSlice]]:
    return [list(rows) for _, rows in itertools.groupby(slices, key=lambda row: row.incarnation)]


def _stretches(
    wanted: list[tuple[TailSlice, TailReplay]],
    tails: Mapping[int, StreamTail],
    covering: Covering,
) -> Iterator[_Stretch]:
    """Yield the stretches to read, in the order of streams, objects and positions."""
    by_object: dict[tuple[int, str], list[_SliceToRead]] = {}
    for row, replay in wanted:
        by_object.setdefault((row.incarnation, row.item.key), []).append(
            _SliceToRead(replay, row.entry)
        )
    for incarnation in sorted({incarnation for incarnation, _ in by_object}):
        for item in tails[incarnation].objects:
            rows = by_object.get((incarnation, item.key))
            if rows:
                rows.sort(key=lambda each: each.entry.position)
                yield from _not_covered(incarnation, item, rows, covering)


def _not_covered(
    incarnation: int, item: TailObject, rows: list[_SliceToRead], covering: Covering
) -> Iterator[_Stretch]:
    """Yield the stretches of one object, in the order of positions: a partition needs its own."""
    cold: list[_SliceToRead] = []
    for row in rows:
        found = covering(incarnation, row.entry)
        if found is None:
            cold.append(row)
            continue
        if cold:
            yield from _cut(incarnation, item, cold)
            cold = []
        yield _Stretch(incarnation, item, (row,), tuple(found))
    if cold:
        yield from _cut(incarnation, item, cold)


def _cut(incarnation: int, item: TailObject, rows: list[_SliceToRead]) -> Iterator[_Stretch]:
    first = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or not _together(rows[first], rows[at - 1], rows[at]):
            yield _Stretch(incarnation, item, tuple(rows[first:at]))
            first = at


def _together(first: _SliceToRead, last: _SliceToRead, row: _SliceToRead) -> bool:
    gap = row.entry.position - last.entry.end
    return gap <= GAP_BYTES_MAX and row.entry.end - first.entry.position <= PART_BYTES_DEFAULT


def _download(stretch: _Stretch) -> Download[_Read]:
    in_memory = stretch.covering or stretch.item.data is not None
    size = 0 if in_memory else stretch.end - stretch.start
    fetch = functools.partial(_fetch, stretch=stretch)
    return Download(key=stretch.item.key, size_bytes=size, fetch=fetch, start=stretch.start)


async def _fetch(store: Store, *, stretch: _Stretch) -> _Read:
    """Read and check a stretch. Damage and a missing object are part of the result, not raised.

    They concern only the partitions with slices there.
    """
    damaged: tuple[Slice, ...] = ()
    data = memoryview(b"")
    if stretch.covering:
        return _Read(stretch, data)
    for _ in range(ATTEMPTS_DEFAULT):
        try:
            data = await _data(store, stretch)
            damaged = _damaged(stretch, data)
        except NotFoundError as error:
            return _Read(stretch, data, missing=error)
        except DamagedError:  # cut short
            damaged = tuple(row.entry for row in stretch.wanted)
        if not damaged:
            break
    return _Read(stretch, data, damaged)


async def _data(store: Store, stretch: _Stretch) -> memoryview:
    if stretch.item.data is not None:  # a small object is read whole with its directory
        return stretch.item.data[stretch.start : stretch.end]
    return await read_range(store, stretch.item.key, stretch.start, stretch.end)


def _damaged(stretch: _Stretch, data: memoryview) -> tuple[Slice, ...]:
    found: list[Slice] = []
    for _, entry in stretch.wanted:
        start = entry.position - stretch.start
        try:
            wal_object.slice_bytes(entry, data[start : start + entry.length], stretch.item.key)
        except DamagedError:
            found.append(entry)
    return tuple(found)


def _take(read: _Read, keep: Callable[[CachedObject], None]) -> None:
    stretch = read.stretch
    item = stretch.item
    if stretch.covering:
        _take_covering(stretch, keep)
        return
    cached = CachedObject(item.key, stretch.incarnation, item.number, read.data)
    if read.damaged or read.missing is not None:
        cached.drop()
    else:
        keep(cached)
    for replay, entry in stretch.wanted:
        start = entry.position - stretch.start
        if read.missing is not None:
            replay.missing = replay.missing or read.missing
        elif entry in read.damaged:
            replay.give_up(entry)
        else:
            replay.take(entry, read.data[start : start + entry.length], item.key)
        if cached.data is None:
            replay.in_memory.clear()  # the slices in memory must reach to the end without a gap
        else:
            replay.in_memory.append((cached, entry._replace(position=start)))


def _take_covering(stretch: _Stretch, keep: Callable[[CachedObject], None]) -> None:
    """Take the slices that are in memory. They are copied: a cache counts what it alone keeps."""
    replay = stretch.wanted[0].replay
    for entry, view in stretch.covering:
        data = memoryview(bytes(view))
        cached = CachedObject(stretch.item.key, stretch.incarnation, stretch.item.number, data)
        keep(cached)
        replay.take(entry, data, stretch.item.key)
        if cached.data is None:
            replay.in_memory.clear()
        else:
            replay.in_memory.append((cached, entry._replace(position=0)))
