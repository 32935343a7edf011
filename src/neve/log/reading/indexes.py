"""The index by which a segment is read in ranges, whatever became of its bundle.

The bundle comes from the index cache: all indexes in one get. Where it is missing, damaged or
contradicts its segment, the segment is read whole once, checked by itself and against what the
manifest says of it, and indexed anew in memory: slower, and right. One segment at a time, since
each is held whole while it is checked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TypeAlias

from neve import runtime
from neve.errors import ClosedError, DamagedError, NotFoundError, UnsupportedError
from neve.log.index_cache import IndexCache
from neve.log.manifest.records import Segment
from neve.log.remote import IndexAbsentError
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle, build_bundle, decode_bundle
from neve.store.port import Store

# Indexes made here, and segments whose index is not believed.
REMEMBERED_MAX = 256
# Records between two entries: few enough that little is read beside what was asked for.
INTERVAL_RECORDS = 100
NO_CRC = -1
"""In a listed segment: nobody wrote its checksum down."""

_Name: TypeAlias = tuple[str, str | None]


class SegmentIndexes:
    """Indexes of segments for live reads."""

    def __init__(self, store: Store, cache: IndexCache, budget: runtime.MemoryShare) -> None:
        self._store = store
        self._cache = cache
        self._budget = budget
        self._made: OrderedDict[_Name, Bundle] = OrderedDict()
        # Segments whose index misled us: by a whole read they were damaged (True), or were not.
        self._distrusted: OrderedDict[_Name, bool] = OrderedDict()
        self._making = asyncio.Lock()
        self._makers: dict[_Name, asyncio.Task[Bundle]] = {}
        # Failures are told to those who wait.
        self._tasks = runtime.Tasks(on_failure=lambda _: None)

    async def get(self, segment: Segment) -> Bundle | None:
        """The segment's index; None where it can be had only by reading the segment whole."""
        name = (segment.key, segment.index_key)
        made = self._made.get(name)
        if made is not None:
            self._made.move_to_end(name)
            return made
        if self._distrusted.get(name) is False:
            return None
        try:
            bundle = await self._cache.get(segment)
        except (NotFoundError, DamagedError, UnsupportedError, IndexAbsentError):
            return None
        fits = int(bundle.offsets[0]) == segment.base and int(bundle.offsets[-1]) <= segment.last
        if not fits or bundle.last_offset not in (None, segment.last):
            return None
        # Of a foreign segment without an index, all is one stretch, which only its footer checks.
        return bundle if bundle.checksummed or len(bundle.offsets) > 1 else None

    async def make(self, segment: Segment) -> Bundle:
        """Index a segment by reading it whole, once for all who want it.

        It goes on if they are cancelled: a large segment may take longer than their patience.
        """
        name = (segment.key, segment.index_key)
        made = self._made.get(name)
        if made is not None:
            return made
        maker = self._makers.get(name)
        if maker is None:
            maker = self._makers[name] = self._tasks.start(
                self._make(segment, name), name=f"index {segment.key}"
            )
            maker.add_done_callback(lambda _: self._makers.pop(name, None))
        try:
            return await asyncio.shield(maker)
        except asyncio.CancelledError:
            if maker.cancelled():
                raise ClosedError("the reader of logs is closed") from None
            raise

    async def _make(self, segment: Segment, name: _Name) -> Bundle:
        async with self._making, self._budget.taken(segment.bytes):
            bundle = await fetch_indexed(self._store, segment)
        self._made[name] = bundle
        _bound(self._made)
        return bundle

    async def aclose(self) -> None:
        await self._tasks.close()

    async def distrust(self, segment: Segment) -> bool:
        """A range does not match its index: whether the segment, read whole, is sound after all."""
        name = (segment.key, segment.index_key)
        if name in self._distrusted or name in self._made:
            return False
        try:
            await self.make(segment)
        except DamagedError:
            self._distrusted[name] = True
            _bound(self._distrusted)
            return False
        self._distrusted[name] = False
        _bound(self._distrusted)
        return True


async def fetch_indexed(store: Store, segment: Segment) -> Bundle:
    """Read a segment whole, check it, and make an index of it."""

    def check(data: memoryview) -> kfs.Segment:
        found = kfs.check(data, segment.key)
        facts = found.facts
        listed = facts.base_offset == segment.base and facts.last_offset <= segment.last
        if not listed or segment.crc not in (NO_CRC, facts.body_crc):
            raise DamagedError(
                segment.key,
                f"it holds offsets from {facts.base_offset} with checksum {facts.body_crc:08x}, "
                f"and is listed from {segment.base}: another segment lies under this key",
            )
        return found

    def index(data: memoryview) -> Bundle:
        encoded = build_bundle(check(data), INTERVAL_RECORDS, producers=(), epochs=())
        return decode_bundle(encoded, segment.index_key or segment.key, segment.bytes)

    async def read() -> Bundle:
        data = await store.get(segment.key, segment.bytes_max)
        return await runtime.offload(index, data)

    try:
        return await read()
    except DamagedError:
        return await read()  # the first may have been torn


def _bound(rows: OrderedDict[_Name, Bundle] | OrderedDict[_Name, bool]) -> None:
    while len(rows) > REMEMBERED_MAX:
        rows.popitem(last=False)
