"""The index cache: bundles of cold segments, in files that survive a restart.

There is one entry per bundle key. A key is never reused for other bytes, so an entry cannot be
stale. An entry that is missing, truncated or damaged is fetched again with one request. Guarantees:

- Any number of readers that wait for one segment cause one load. A failed load fails for all of
  them and is not remembered. A reader that is cancelled does not disturb the others.
- Files, including half-written ones and those being removed, never exceed `index.cache.bytes`. The
  least recently used entry is evicted first, in the background. Readers do not wait for writes.
- An entry is written under a temporary name and moved into place, and carries its key and a
  checksum. It is not synced: an entry that a power failure truncated fails its check.
- Disk errors do not reach readers: they are counted, and the bucket is read instead.

A folder belongs to one process and one bucket. Without a folder, entries are kept in memory only.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neve import runtime
from neve.errors import ClosedError, DamagedError
from neve.log.index_files import EntryFolder, FileCounters
from neve.log.manifest.records import Segment
from neve.log.remote import RemoteStorage, bare_bundle, encode_indexes
from neve.log.segment.bundle import Bundle, decode_foreign
from neve.settings import CacheSettings

# Loaded entries that wait to be written. Further ones are not written: a slow disk must not fill
# the memory.
WRITES_PENDING_MAX = 64


@dataclass
class IndexCacheCounters:
    """Counters: bundles read from memory, from files and from the bucket, and failures."""

    memory_hits: int = 0
    file_hits: int = 0
    loads: int = 0
    load_failures: int = 0
    writes_skipped: int = 0


class IndexCache:
    """Bundles by segment. Create it with `open`; `aclose` ends its background work."""

    def __init__(
        self, remote: RemoteStorage, folder: EntryFolder | None, memory_bytes: int
    ) -> None:
        self.counters = IndexCacheCounters()
        self._remote = remote
        self._folder = folder
        self._memory = _Memory(memory_bytes)
        self._loading: dict[str, asyncio.Future[Bundle]] = {}
        # The readers that wait for a load raise its failure.
        self._loaders = runtime.Tasks(on_failure=self._count_failure)
        self._writes = runtime.Tasks()
        self._closed = False

    @classmethod
    async def open(cls, remote: RemoteStorage, settings: CacheSettings) -> IndexCache:
        """Open the cache with the entries of an earlier process, and remove temporary files."""
        if not settings.index_folder:
            return cls(remote, None, settings.index_memory_bytes)
        folder = await EntryFolder.open(Path(settings.index_folder), settings.index_bytes)
        return cls(remote, folder, settings.index_memory_bytes)

    @property
    def file_counters(self) -> FileCounters:
        return self._folder.counters if self._folder else FileCounters()

    @property
    def memory_bytes(self) -> int:
        return self._memory.bytes

    @property
    def file_bytes(self) -> int:
        """The bytes of all files, including half-written ones and those being removed."""
        return self._folder.bytes if self._folder else 0

    async def get(self, segment: Segment) -> Bundle:
        """Return the segment's bundle. If this raises, read the segment without an index."""
        if self._closed:
            raise ClosedError("the index cache is closed")
        key = segment.index_key
        if key is None:
            return bare_bundle(segment)
        known = self._memory.get(key)
        if known is not None:
            self.counters.memory_hits += 1
            if self._folder is not None:
                self._folder.touch(key)
            return known
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.get_running_loop().create_future()
            self._loading[key] = loading
            load = self._loaders.start(self._load(segment, key), name=f"index {key}")
            load.add_done_callback(functools.partial(self._loaded, key))
        # Shielded: other readers wait for the load, even if this one is cancelled.
        return await asyncio.shield(loading)

    async def settle(self) -> None:
        """Wait until all loads, writes and removals in the background have ended."""
        await self._loaders.join()
        await self._writes.join()
        if self._folder is not None:
            await self._folder.settle()

    async def aclose(self) -> None:
        """Cancel loads (their readers get ClosedError) and wait for files being written."""
        self._closed = True
        await self._loaders.close()
        await self.settle()

    async def __aenter__(self) -> IndexCache:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _load(self, segment: Segment, key: str) -> Bundle:
        return await self._from_file(segment, key) or await self._from_remote(segment, key)

    def _loaded(self, key: str, load: asyncio.Task[Bundle]) -> None:
        """Resolve waiting readers. A cancelled load must not look like their own cancellation."""
        loading = self._loading.pop(key)
        failure = (
            ClosedError(f"{key}: its load was cancelled, or the index cache closed")
            if load.cancelled()
            else load.exception()
        )
        if failure is None:
            loading.set_result(load.result())
        else:
            loading.set_exception(failure)
            loading.exception()  # marks it as retrieved, even if no reader waits any more

    def _count_failure(self, _failure: BaseException) -> None:
        self.counters.load_failures += 1

    async def _from_file(self, segment: Segment, key: str) -> Bundle | None:
        data = await self._folder.read(key) if self._folder is not None else None
        if data is None:
            return None
        try:
            bundle = decode_foreign(data, key, segment.bytes)
        except DamagedError:
            # The entry is intact but does not fit the segment: perhaps it is of another bucket.
            assert self._folder is not None
            self._folder.discard(key)
            return None
        self.counters.file_hits += 1
        self._memory.put(key, bundle, len(data))
        return bundle

    async def _from_remote(self, segment: Segment, key: str) -> Bundle:
        self.counters.loads += 1
        data = encode_indexes(segment, await self._remote.fetch_all_indexes(segment))
        bundle = decode_foreign(data, key, segment.bytes)
        self._memory.put(key, bundle, len(data))
        if self._folder is not None:
            self._start_write(self._folder.write(key, data))
        return bundle

    def _start_write(self, write: Coroutine[Any, Any, None]) -> None:
        if len(self._writes) >= WRITES_PENDING_MAX:
            write.close()
            self.counters.writes_skipped += 1
        else:
            self._writes.start(write, name="index write")


class _Memory:
    """The most recently used decoded bundles, up to a limit in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bundles: OrderedDict[str, tuple[Bundle, int]] = OrderedDict()
        self.bytes = 0

    def get(self, key: str) -> Bundle | None:
        found = self._bundles.get(key)
        if found is None:
            return None
        self._bundles.move_to_end(key)
        return found[0]

    def put(self, key: str, bundle: Bundle, encoded_bytes: int) -> None:
        cost = encoded_bytes + bundle.offsets.nbytes + bundle.positions.nbytes
        if bundle.checksums is not None:
            cost += bundle.checksums.stretch_crcs.nbytes
        if cost > self._bytes_max:
            return
        _, replaced = self._bundles.pop(key, (None, 0))
        self.bytes -= replaced
        self._bundles[key] = (bundle, cost)
        self.bytes += cost
        while self.bytes > self._bytes_max:
            _, (_, freed) = self._bundles.popitem(last=False)
            self.bytes -= freed
