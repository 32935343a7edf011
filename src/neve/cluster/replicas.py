"""The partitions of followed streams that consumers read from this process.

A copy of a partition (`ReplicaLog`) is opened when the first consumer asks for it, and closed when
none has asked for a while, when the partition gets another leader or epoch, or when this process
follows its leader no more. Opening resolves the partition: its streams first, the manifest
afterwards, like every reader. What the followed stream brings later continues it. Whatever does not
fit (records were rolled up, tiered or moved to another stream meanwhile) resolves it again.

A follower does not judge damage at first sight: what it misses may have moved in a way that its
view of the cluster does not show yet. It closes the copy, and the consumer goes to the leader. Only
an object that the next copy misses as well is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from neve import runtime
from neve.cluster.followed_stream import FollowedObject, FollowedStream
from neve.cluster.log import ClusterLog
from neve.cluster.own_stream import SLICE_OVERHEAD_BYTES
from neve.cluster.state import ClusterState, PartitionState, Topic
from neve.errors import (
    DamagedError,
    FencedError,
    LostRangeError,
    NeveError,
    NotFoundError,
    UnavailableError,
)
from neve.log.replica import ReplicaLog
from neve.log.tail import assemble
from neve.log.wal.directories import DirectoryCache
from neve.log.wal.reader import PartitionId, StreamTail, TailObject, WalReader
from neve.settings import PARTITION_BYTES, PrefetchSettings
from neve.store.port import Store

_log = logging.getLogger(__name__)

# A copy that no consumer has asked for is closed after this time.
IDLE_SECONDS = 60.0
# The manifest of a copy that is read is read again after this time: its log's start may have moved.
MANIFEST_SECONDS = 10.0
# Attempts to resolve a partition whose records move meanwhile, and the pause between them.
RESOLVES_MAX = 20
PAUSE_SECONDS = 0.05
# Partitions that are resolved at once.
RESOLVING_MAX = 16
# Directories of WAL objects that are remembered between two reads of the same stream.
DIRECTORY_BYTES_MAX = 2 * 1024 * 1024


class NotFollowedError(FencedError):
    """This process does not follow the partition's leader, or lags, or must find out more."""


@dataclass(eq=False)
class _Replica:
    """A copy and what is known about its use."""

    log: ReplicaLog
    stream: FollowedStream
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    used_at: float = field(default_factory=runtime.monotonic)
    refreshed_at: float = field(default_factory=runtime.monotonic)
    work: asyncio.Task[None] | None = None
    is_stale = False  # it must be resolved again


class Replicas:
    """The copies of one process, by partition. Call `close` at the end."""

    def __init__(
        self,
        store: Store,
        cluster: ClusterLog,
        streams: dict[int, FollowedStream],
        prefetch: PrefetchSettings,
        count: Callable[[int], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._streams = streams
        self._prefetch = prefetch
        self._count = count
        self._replicas: dict[PartitionId, _Replica] = {}
        self._missed: dict[PartitionId, str] = {}  # the object that the last copy missed
        self._reads: dict[int, _SharedRead] = {}
        self._counted = 0
        self._directories: DirectoryCache[TailObject] = DirectoryCache(DIRECTORY_BYTES_MAX)
        self._resolving = asyncio.Semaphore(RESOLVING_MAX)
        self._tasks = runtime.Tasks(on_failure=_failed)

    def __len__(self) -> int:
        return len(self._replicas)

    async def close(self) -> None:
        await self._tasks.close()
        for partition in list(self._replicas):
            self._close(partition, FencedError("this broker is stopping"))
        self._recount()

    # -- lookups -----------------------------------------------------------------------------

    def follows(self, topic: Topic, number: int) -> bool:
        """Whether this process may serve reads of a partition, as a follower that keeps up."""
        return self._stream_of(topic, number) is not None

    def find(self, topic: Topic, number: int) -> ReplicaLog | None:
        """Return a partition's copy if it is open and its stream is in sync."""
        replica = self._replicas.get((topic.id_bytes, number))
        if replica is None or not replica.opened.is_set() or not replica.stream.in_sync:
            return None
        now = replica.used_at = runtime.monotonic()
        if now - replica.refreshed_at >= MANIFEST_SECONDS and replica.work is None:
            replica.refreshed_at = now
            replica.work = self._tasks.start(self._refresh(replica))
        return replica.log

    async def open(self, topic: Topic, number: int) -> ReplicaLog:
        """Return a partition's copy, which is resolved first if it is not open.

        Raises NotFollowedError if this process cannot serve the partition.
        """
        partition = topic.id_bytes, number
        stream = self._stream_of(topic, number)
        if stream is None:
            raise NotFollowedError(f"this broker does not follow partition {number} of its leader")
        replica = self._replicas.get(partition)
        if replica is None:
            replica = self._opened(topic, number, stream)
        await replica.opened.wait()
        if replica.log.closed is not None:
            raise NotFollowedError(f"{replica.log.name}: {replica.log.closed}")
        return replica.log

    def _stream_of(self, topic: Topic, number: int) -> FollowedStream | None:
        if not 0 <= number < len(topic.partitions):
            return None
        stream = self._streams.get(topic.partitions[number].leader)
        return None if stream is None or not stream.in_sync else stream

    def _opened(self, topic: Topic, number: int, stream: FollowedStream) -> _Replica:
        log = ReplicaLog(
            self._store,
            topic=topic.name,
            topic_id=topic.id_bytes,
            partition=number,
            epoch=topic.partitions[number].epoch,
            resolve=self._resolve_again,
        )
        replica = self._replicas[topic.id_bytes, number] = _Replica(log, stream)
        self._mark_stale(replica)
        return replica

    # -- changes -----------------------------------------------------------------------------

    def apply(self, state: ClusterState) -> None:
        """Close the copies of partitions that have another leader or epoch, or are gone."""
        for partition, replica in list(self._replicas.items()):
            topic = state.topic_by_id(partition[0])
            if topic is None:
                self._missed.pop(partition, None)
            current = None if topic is None else topic.partitions[partition[1]]
            if not self._is_current(replica, current):
                name = replica.log.name
                self._close(partition, FencedError(f"{name} is not followed in its epoch any more"))

    def _is_current(self, replica: _Replica, current: PartitionState | None) -> bool:
        stream = replica.stream
        return (
            current is not None
            and (current.leader, current.epoch) == (stream.incarnation, replica.log.epoch)
            and self._streams.get(stream.incarnation) is stream
        )

    def tidy(self) -> None:
        """Close the copies that no consumer has asked for lately. Count the memory of the rest."""
        idle_since = runtime.monotonic() - IDLE_SECONDS
        for partition, replica in list(self._replicas.items()):
            if replica.used_at < idle_since:
                self._close(partition, FencedError(f"{replica.log.name} was not read for a while"))
        self._recount()

    def _recount(self) -> None:
        rows = sum(len(replica.log.tail) for replica in self._replicas.values())
        size = PARTITION_BYTES * len(self._replicas) + SLICE_OVERHEAD_BYTES * rows
        self._count(size - self._counted)
        self._counted = size

    def _close(self, partition: PartitionId, error: NeveError) -> None:
        replica = self._replicas.pop(partition)
        if replica.work is not None:
            replica.work.cancel()
        replica.log.close(error)
        replica.opened.set()

    def on_object(self, stream: FollowedStream, found: FollowedObject) -> None:
        """Continue the copies with the slices of the next number of a stream."""
        for entry in found.slices if self._replicas else ():
            replica = self._replicas.get((entry.topic_id, entry.partition))
            if replica is None or replica.stream is not stream or not replica.opened.is_set():
                continue
            if not replica.log.take(found.cached, entry):
                self._mark_stale(replica)

    def on_gap(self, stream: FollowedStream) -> None:
        """Resolve the copies again that a stream may have carried past."""
        for replica in self._replicas.values():
            if replica.stream is stream:
                self._mark_stale(replica)

    def failed(self, log: ReplicaLog, error: NeveError) -> NeveError:
        """Return the error with which a consumer's read fails.

        What looks lost closes the copy, and the consumer finds the leader. If the next copy misses
        the same object, it is lost.
        """
        if not isinstance(error, DamagedError | NotFoundError | LostRangeError):
            return error
        partition = log.topic_id, log.partition
        name = str(error) if isinstance(error, LostRangeError) else error.key
        if self._missed.get(partition) == name:
            return error
        self._missed[partition] = name
        replica = self._replicas.get(partition)
        moved = NotFollowedError(f"{log.name} is resolved again: {error}")
        if replica is not None and replica.log is log:
            self._close(partition, moved)
        return moved

    def read(self, log: ReplicaLog) -> None:
        """Take note that a read has succeeded."""
        if self._missed:
            self._missed.pop((log.topic_id, log.partition), None)

    # -- resolving ---------------------------------------------------------------------------

    def _mark_stale(self, replica: _Replica) -> None:
        """Resolve a copy in the background, after what is running for it."""
        replica.is_stale = True
        if replica.work is None:
            replica.work = self._tasks.start(
                self._keep_resolving(replica), name=f"replica {replica.log.name}"
            )

    async def _refresh(self, replica: _Replica) -> None:
        try:
            await replica.log.refresh()
        except NeveError as error:
            _log.debug("%s: its manifest could not be read: %s", replica.log.name, error)
        await self._keep_resolving(replica)

    async def _keep_resolving(self, replica: _Replica) -> None:
        try:
            while replica.is_stale:
                replica.is_stale = False
                await self._resolve(replica)
        except NeveError as error:
            partition = replica.log.topic_id, replica.log.partition
            if self._replicas.get(partition) is replica:
                self._close(partition, error)
        finally:
            replica.work = None

    async def _resolve_again(self, log: ReplicaLog) -> None:
        """Resolve a copy for a read that found one of its objects gone."""
        replica = self._replicas.get((log.topic_id, log.partition))
        if replica is None or replica.log is not log:
            raise log.closed or NotFollowedError(f"{log.name} is closed")
        await self._resolve(replica)

    async def _resolve(self, replica: _Replica) -> None:
        """Read the streams of a partition, then its manifest, and continue the copy from there.

        Raises NotFollowedError if it has another leader or epoch meanwhile, and UnavailableError if
        its records move at every attempt.
        """
        async with self._resolving:
            for _ in range(RESOLVES_MAX):
                try:
                    if await self._attempt(replica):
                        return
                except (DamagedError, NotFoundError):
                    # A stream that was retired meanwhile looks damaged: the cluster log shows it.
                    before = self._cluster.state
                    if await self._cluster.refresh() is before:
                        raise
                await runtime.sleep(PAUSE_SECONDS)
        raise UnavailableError(replica.log.name, "its records moved during each attempt to read it")

    async def _attempt(self, replica: _Replica) -> bool:
        log, stream = replica.log, replica.stream
        topic = self._cluster.state.topic_by_id(log.topic_id)
        current = None if topic is None else topic.partitions[log.partition]
        if current is None or not self._is_current(replica, current):
            raise NotFollowedError(f"{log.name} has another leader or epoch now")
        wanted = sorted({part.incarnation for part in current.streams})
        tails = {each: await self._tail(each) for each in wanted}
        known = await log.manifest.refresh()
        found = assemble(log.topic_id, log.partition, current.streams, tails, known)
        position = tails[stream.incarnation].position
        if found is None or log.closed is not None or position < stream.complete_from:
            return False
        # No await from here on: the stream must not go on between the two reads of it.
        later = stream.slices_from(position, (log.topic_id, log.partition))
        if not log.resolved(found, later):
            return False
        replica.opened.set()
        return True

    async def _tail(self, incarnation: int) -> StreamTail:
        if incarnation not in self._reads:
            reader = WalReader(
                self._store, incarnation, self._prefetch, self._directories, data_bytes_max=0
            )
            self._reads[incarnation] = _SharedRead(reader, self._tasks)
        read = self._reads[incarnation]
        try:
            return await read.tail()
        finally:
            if read.is_idle:
                self._reads.pop(incarnation, None)


class _SharedRead:
    """Reads of one stream's tail, each for all that asked before it began.

    A read that had begun already could show an object to a caller that has just found it gone.
    """

    def __init__(self, reader: WalReader, tasks: runtime.Tasks) -> None:
        self._reader = reader
        self._tasks = tasks
        self._running: asyncio.Task[StreamTail] | None = None
        self._next: asyncio.Task[StreamTail] | None = None

    @property
    def is_idle(self) -> bool:
        return self._running is None and self._next is None

    async def tail(self) -> StreamTail:
        if self._next is None:
            self._next = self._tasks.start(self._read(self._running))
        task = self._next
        await asyncio.wait([task])
        if task.cancelled():
            raise NotFollowedError("this broker is stopping")
        return task.result()

    async def _read(self, before: asyncio.Task[StreamTail] | None) -> StreamTail:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        try:
            return await self._reader.tail()
        finally:
            self._running = None


def _failed(failure: BaseException) -> None:
    if not isinstance(failure, NeveError):  # those are raised to the tasks that need the result
        _log.error("a task of the replicas failed", exc_info=failure)
