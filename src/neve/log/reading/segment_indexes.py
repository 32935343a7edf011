"""The index by which a segment is read in ranges, and what to do if it is missing or wrong.

The index cache loads a segment's bundle with one get. A bundle that is missing, damaged, or does
not fit its segment is not used. Then a leader rebuilds the index in memory from the whole segment
(`IndexRebuilder`), and other readers read the segment whole: slower, and still correct. If a range
contradicts its index, either of them may be damaged: `distrust` decides, once per segment.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TypeAlias, TypeVar

from neve import runtime
from neve.errors import ClosedError, DamagedError, NotFoundError, UnsupportedError
from neve.log.downloads import until_believed
from neve.log.index_cache import IndexCache
from neve.log.manifest.records import Segment
from neve.log.reading.located_range import check_whole
from neve.log.remote import IndexAbsentError
from neve.log.segment.bundle import Bundle, build_bundle, decode_bundle
from neve.store.port import Store

# Rebuilt indexes that are kept, and segments whose index is distrusted.
REMEMBERED_MAX = 256
# Reads of a segment, which is large, before its damage is believed.
REBUILD_ATTEMPTS = 2
# Records between two entries of a rebuilt index: a read then fetches little it does not need.
INTERVAL_RECORDS = 100

SegmentId: TypeAlias = tuple[str, str | None]
T = TypeVar("T")


def check_fits(bundle: Bundle, segment: Segment) -> None:
    """Raise DamagedError if a bundle cannot be the index of a listed segment."""
    first, last = int(bundle.offsets[0]), int(bundle.offsets[-1])
    within = first == segment.base and last <= segment.last
    if not within or bundle.last_offset not in (None, segment.last):
        if bundle.last_offset is not None:
            last = bundle.last_offset
        raise DamagedError(
            bundle.key,
            f"it indexes offsets {first} to {last}, its segment has {segment.base} to "
            f"{segment.last}",
        )


class SegmentIndexes:
    """Indexes of segments. Without a rebuilder, a segment without an index is read whole."""

    def __init__(self, cache: IndexCache, rebuilder: IndexRebuilder | None = None) -> None:
        self._cache = cache
        self._rebuilder = rebuilder
        # Segments that contradicted their index. True: the whole segment was damaged.
        self._distrusted: OrderedDict[SegmentId, bool] = OrderedDict()

    async def get(self, segment: Segment) -> Bundle | None:
        """Return the segment's index; None if only a read of the whole segment can give one."""
        name = _id(segment)
        rebuilt = self._rebuilder.known(name) if self._rebuilder is not None else None
        if rebuilt is not None:
            return rebuilt
        if self._distrusted.get(name) is False:
            return None
        try:
            bundle = await self._cache.get(segment)
            check_fits(bundle, segment)
        except (NotFoundError, DamagedError, UnsupportedError, IndexAbsentError):
            return None
        # A foreign segment without an index is one stretch, which only its footer checks.
        return bundle if bundle.checksummed or len(bundle.offsets) > 1 else None

    async def get_or_rebuild(self, segment: Segment) -> Bundle | None:
        """Return the segment's index, rebuilt if necessary; None: read the segment whole.

        Raises DamagedError if the segment that the index is rebuilt from is damaged.
        """
        bundle = await self.get(segment)
        if bundle is None and self._rebuilder is not None:
            return await self._rebuilder.rebuild(segment)
        return bundle

    async def distrust(self, segment: Segment, bundle: Bundle | None = None) -> bool:
        """Stop using an index that a read of its segment contradicted.

        `bundle` is that index. Several readers of a segment must give it, because one of them may
        have replaced it already.

        Returns True if the read is worth another attempt, without that index; False if that was
        tried before, or the whole segment is damaged as well.
        """
        name = _id(segment)
        rebuilder = self._rebuilder
        rebuilt = None if rebuilder is None else rebuilder.known(name)
        if rebuilt is not None:
            return bundle is not None and bundle is not rebuilt
        if segment.index_key is None or name in self._distrusted:
            return False
        damaged = False
        if rebuilder is not None:
            try:
                await rebuilder.rebuild(segment)
            except DamagedError:
                damaged = True
        self._distrusted[name] = damaged
        _bound(self._distrusted)
        return not damaged

    async def aclose(self) -> None:
        if self._rebuilder is not None:
            await self._rebuilder.aclose()


class IndexRebuilder:
    """Indexes segments in memory. One at a time: each is held whole while it is checked."""

    def __init__(self, store: Store, budget: runtime.MemoryShare) -> None:
        self._store = store
        self._budget = budget
        self._rebuilt: OrderedDict[SegmentId, Bundle] = OrderedDict()
        self._running = asyncio.Lock()
        self._rebuilds: dict[SegmentId, asyncio.Task[Bundle]] = {}
        # The readers that wait for a rebuild raise its failure.
        self._tasks = runtime.Tasks(on_failure=lambda _: None)

    def known(self, name: SegmentId) -> Bundle | None:
        """Return an index that was rebuilt before."""
        bundle = self._rebuilt.get(name)
        if bundle is not None:
            self._rebuilt.move_to_end(name)
        return bundle

    async def rebuild(self, segment: Segment) -> Bundle:
        """Index a segment by reading it whole, once for all readers that wait.

        It continues if they are cancelled: a large segment may take longer than a client waits.
        Raises DamagedError if the segment is damaged.
        """
        name = _id(segment)
        known = self.known(name)
        if known is not None:
            return known
        task = self._rebuilds.get(name)
        if task is None:
            task = self._rebuilds[name] = self._tasks.start(
                self._rebuild(segment, name), name=f"index {segment.key}"
            )
            task.add_done_callback(lambda _: self._rebuilds.pop(name, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ClosedError("the reader of logs is closed") from None
            raise

    async def aclose(self) -> None:
        await self._tasks.close()

    async def _rebuild(self, segment: Segment, name: SegmentId) -> Bundle:
        async with self._running, self._budget.taken(segment.bytes):
            bundle = await _read_and_index(self._store, segment)
        self._rebuilt[name] = bundle
        _bound(self._rebuilt)
        return bundle


async def _read_and_index(store: Store, segment: Segment) -> Bundle:
    def index(data: memoryview) -> Bundle:
        found = check_whole(segment, data)
        encoded = build_bundle(found, INTERVAL_RECORDS, producers=(), epochs=())
        return decode_bundle(encoded, segment.index_key or segment.key, segment.bytes)

    async def read() -> Bundle:
        data = await store.get(segment.key, segment.bytes_max)
        return await runtime.offload(index, data)

    return await until_believed(read, REBUILD_ATTEMPTS)


def _id(segment: Segment) -> SegmentId:
    return segment.key, segment.index_key


def _bound(rows: OrderedDict[SegmentId, T]) -> None:
    while len(rows) > REMEMBERED_MAX:
        rows.popitem(last=False)
