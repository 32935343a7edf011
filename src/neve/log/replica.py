"""A follower's copy of one partition, under one leader epoch: what it may show to consumers.

Its records are in the leader's streams and in segments, like those of any reader. The follower
takes the slices of the leader's stream in order. A slice is taken only if it has the epoch of this
copy and begins at its end; any other one means that records moved, and the caller resolves the
partition again from the manifest and all its streams. So a record is shown only once every record
before it is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from neve import runtime
from neve.errors import NeveError
from neve.log.cached_slice import CachedObject, CachedSlice
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.segment.sections import EpochStart
from neve.log.tail import PartitionTail
from neve.log.untiered import Untiered
from neve.log.wal.object import Slice
from neve.store.port import Store

ReplicaWatcher: TypeAlias = Callable[["ReplicaLog"], None]


class ReplicaLog:
    """One partition as a follower knows it. Readers use it like the leader's log.

    `resolve` is called if one of its objects is gone; it calls `resolved` with what it found.
    """

    def __init__(
        self,
        store: Store,
        *,
        topic: str,
        topic_id: bytes,
        partition: int,
        epoch: int,
        resolve: Callable[[ReplicaLog], Awaitable[None]],
    ) -> None:
        self._watchers: dict[ReplicaWatcher, None] = {}
        self._end = 0
        self.topic_id = topic_id
        self.partition = partition
        self.epoch = epoch
        self.name = f"{topic}-{partition}"
        self.closed: NeveError | None = None
        self.recent: deque[CachedSlice] = deque()
        self.manifest = Manifest(store, manifest_keys(topic, topic_id, partition))

        async def find_moved(_: int) -> None:
            await resolve(self)

        self.untiered = Untiered(store, self.manifest, self.name, self.recent, find_moved)

    # -- offsets -----------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that the follower has seen committed."""
        return max(self._end, self.manifest.state.start)

    @property
    def start_offset(self) -> int:
        return self.manifest.state.start

    @property
    def tiered_offset(self) -> int:
        return self.manifest.state.next

    @property
    def tail(self) -> deque[CachedSlice]:
        return self.untiered.rows

    @property
    def epochs(self) -> list[EpochStart]:
        """The leader epochs of the slices that are not tiered, and where they begin."""
        found: list[EpochStart] = []
        for row in self.untiered.rows:
            if not found or found[-1].epoch < row.entry.leader_epoch:
                found.append(EpochStart(row.entry.leader_epoch, row.entry.base_offset))
        return found

    # -- records -----------------------------------------------------------------------------

    def follows(self, entry: Slice) -> bool:
        """Whether a slice of this epoch continues the copy."""
        return entry.leader_epoch == self.epoch and entry.base_offset == self.high_watermark

    def take(self, cached: CachedObject, entry: Slice) -> bool:
        """Take the next slice. Returns False if the partition must be resolved again.

        Slices of earlier epochs, and those that are in the copy already, are passed over.
        """
        if entry.leader_epoch < self.epoch or entry.last_offset < self.high_watermark:
            return True
        if not self.follows(entry):
            return False
        row = CachedSlice(cached, entry, runtime.monotonic())
        self.untiered.hold(row)
        if cached.data is not None:
            self.recent.append(row)
            cached.kept_in(self.recent)
        self._end = entry.last_offset + 1
        self._notify()
        return True

    def resolved(
        self, tail: PartitionTail, later: Sequence[tuple[CachedObject, Slice]] = ()
    ) -> bool:
        """Continue from what streams and the manifest, read after them, have now.

        `later` are the slices of the followed stream that the tail may lack. Returns False, and
        changes nothing, if both together do not reach the end of this copy: they are too old.
        """
        now = runtime.monotonic()
        objects: dict[str, CachedObject] = {}
        rows: list[CachedSlice] = []
        for incarnation, item, entry in tail.slices:
            # Without the bytes that were read with small objects: no cache counts them.
            at = objects.setdefault(
                item.key, CachedObject(item.key, incarnation, item.number, None)
            )
            rows.append(CachedSlice(at, entry, now))
        end = tail.end
        for cached, entry in later:
            if entry.leader_epoch != self.epoch or entry.last_offset < end:
                continue
            if entry.base_offset != end:
                return False
            rows.append(CachedSlice(cached, entry, now))
            end = entry.last_offset + 1
        if end < self.high_watermark:
            return False
        self.untiered.rows = deque()
        self.untiered.bytes = 0
        for row in rows:
            self.untiered.hold(row)
        if end > self._end:
            self._end = end
            self._notify()
        return True

    async def refresh(self) -> None:
        """Read the manifest: the log's start may have moved, and slices were tiered."""
        await self.manifest.refresh()
        self.untiered.drop_tiered()

    # -- readers -----------------------------------------------------------------------------

    def watch(self, callback: ReplicaWatcher) -> None:
        """Call back at every change of the end, and once on `close`, until `unwatch`."""
        self._watchers[callback] = None

    def unwatch(self, callback: ReplicaWatcher) -> None:
        self._watchers.pop(callback, None)

    def close(self, error: NeveError) -> None:
        """Serve no more reads: the partition has another leader or epoch, or is gone."""
        if self.closed is None:
            self.closed = error
            self._notify()
            self._watchers.clear()

    def _notify(self) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher(self)
            except Exception as failure:  # a reader's bug must not stop the follower
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a watcher of {self.name} failed", "exception": failure}
                )
