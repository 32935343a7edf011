"""Handle Fetch requests: return records from memory at once; otherwise wait, or read the store.

Partitions are read in parallel: one whose records must come from the store delays neither the other
partitions, nor the response beyond max_wait. Commits wake a waiting request; it does not poll.

Records reserve their bytes of `fetch.unsent.bytes` when they are found. If there is no room, the
request waits until one batch fits. If that takes too long, the response has no records, and the
client fetches again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.admin.cluster import NamedLeaders
from neve.broker.error_codes import code_of, fetch_error
from neve.broker.errors import FetchSessionError
from neve.broker.fetch.partition import (
    NO_REPLICA,
    NOT_LEADER,
    Consumer,
    FetchPartition,
    PartitionRead,
    name_leaders,
    open_copies,
)
from neve.broker.fetch.pinned_buffers import unpin
from neve.broker.fetch.reservation import Reservation
from neve.broker.fetch.sessions import NO_SESSION, FetchSession
from neve.errors import DamagedError, FencedError, NeveError
from neve.log.reading.damage import explain
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.log.reading.record_chunk import RecordChunk
from neve.log.replica import ReplicaLog
from neve.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.broker.fetch.partition import ServedLog

log_line = logging.getLogger("neve.broker.fetch")

_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11
_READ_COMMITTED = 1
_Topic = FetchResponse.Topic
_OUT_OF_RANGE = code_of(OffsetOutOfRangeError)
# The assumed size of a batch before it is read: about Kafka's default max.message.bytes.
UNKNOWN_BATCH_BYTES = 1024 * 1024
# The memory that a waiting fetch takes up per partition.
WAITING_PARTITION_BYTES = 1024
# The longest throttle time of a client whose fetch may not wait, because too many do.
THROTTLE_MS_MAX = 5_000
# A quarter of `fetch.waiting.bytes` is reserved for fetches of at most this many partitions.
FEW_PARTITIONS = 16
# Below this share, reading more partitions in parallel costs more than it saves.
COLD_SHARE_BYTES_MIN = 64 * 1024


def fetch(
    broker: Broker, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[object, None, FetchResponse]:
    """Return a response, or a coroutine if the request must wait or read the store."""
    uses_ids = context.api_version >= _TOPIC_IDS_SINCE
    try:
        session, partitions, incremental = broker.sessions.begin(request, uses_ids)
    except FetchSessionError as error:
        return FetchResponse(error_code=fetch_error(error), session_id=NO_SESSION)
    reservation = Reservation(broker.unsent, client_keeps_up=context.client_keeps_up)
    consumer = Consumer(uses_ids, request.rack_id if context.api_version >= _RACKS_SINCE else "")
    work = _Fetch(broker, request, session, partitions, consumer=consumer, reservation=reservation)
    work.read_memory()
    if work.is_complete:
        return work.response(incremental)
    # A task that is cancelled before its first step runs no `finally`, so nothing may be reserved.
    work.drop_records()
    return work.finish(incremental)


class _Fetch:
    """The work on one request."""

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        session: FetchSession | None,
        partitions: list[FetchPartition],
        *,
        consumer: Consumer,
        reservation: Reservation,
    ) -> None:
        self._broker = broker
        self._session = session
        self._consumer = consumer
        bytes_max = broker.settings.fetch.response_bytes_max
        self._bytes_left: int = min(request.max_bytes, bytes_max, reservation.room_bytes)
        # A client that waits for records gets at least one, however little room there is.
        least = min(1, request.min_bytes)
        self._min_bytes: int = max(least, min(request.min_bytes, self._bytes_left))
        # A connection with enough fetches is not read, so the broker may not notice its end.
        wait_ms = min(request.max_wait_ms, broker.settings.broker.connection_idle_ms)
        self._wait_seconds = wait_ms / 1000
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._size = 0
        self._reservation = reservation
        self._reads = [PartitionRead(each) for each in partitions]
        self._ends_now = False  # respond without waiting for more records
        self._woken: asyncio.Future[None] | None = None
        self._changed: dict[int, PartitionRead] = {}

    # -- reading -----------------------------------------------------------------------------

    def read_memory(self) -> None:
        """Read the records that are in memory."""
        for read in self._reads:
            read.find_log(self._broker.node, self._consumer)
            if read.log is not None and read.preferred == NO_REPLICA:
                self._read_from_memory(read, read.log)

    def _read_from_memory(self, read: PartitionRead, log: ServedLog) -> None:
        """Read the records that still fit, or set the reason why there are none."""
        offset = read.requested.offset
        read.cold = read.above_end = False
        read.lacks_bytes = 0
        if log.closed is not None:
            read.error = NOT_LEADER
        elif offset < log.start_offset:
            read.error = _OUT_OF_RANGE
        elif offset > log.high_watermark:
            # A follower waits: it does not know where the log ends.
            read.above_end = not isinstance(log, ReplicaLog) and offset > log.next_offset
        elif offset < log.high_watermark and (self._bytes_left > 0 or not self._size):
            most = min(read.requested.max_bytes, self._bytes_left)
            chunk = self._broker.reader.read_now(log, offset, most)
            if chunk is None:
                read.cold = True
            else:
                self._take(read, chunk)

    def _take(self, read: PartitionRead, chunk: RecordChunk) -> None:
        """Add records to the response if they fit.

        The first partition with records gets at least one batch, whatever its size.
        """
        if self._size and chunk.size > self._bytes_left:
            return
        if not self._reservation.use(chunk.size):
            read.lacks_bytes = chunk.size
            return
        backlogged = self._broker.unsent.is_backlogged
        read.chunk = unpin(chunk, backlogged=backlogged) if backlogged or read.cold else chunk
        self._size += chunk.size
        self._bytes_left -= chunk.size

    @property
    def is_complete(self) -> bool:
        """Whether a response may be sent at once, without a read from the store."""
        if self._lacks_room:
            return False
        if any(read.cold or read.above_end or read.unopened for read in self._reads):
            return False
        return self._is_due

    @property
    def _lacks_room(self) -> bool:
        return not self._size and any(read.lacks_bytes for read in self._reads)

    @property
    def _is_due(self) -> bool:
        return (
            self._size >= self._min_bytes
            or self._wait_seconds <= 0
            or self._ends_now
            or any(read.error or read.preferred != NO_REPLICA for read in self._reads)
            or not self._reads
        )

    # -- waiting -----------------------------------------------------------------------------

    async def finish(self, incremental: bool) -> FetchResponse:
        """Read cold records from the store, wait for new ones, and return the response.

        If too many fetches wait already, return at once, with a throttle time.
        """
        ends_at = runtime.monotonic() + self._wait_seconds
        waiting, size = self._broker.waiting, WAITING_PARTITION_BYTES * len(self._reads)
        spare = waiting.bytes_max // 4 if len(self._reads) > FEW_PARTITIONS else 0
        if not waiting.try_take(size, spare=spare):
            self._restore_records()
            response = self.response(incremental)
            response.throttle_time_ms = min(int(self._wait_seconds * 1000), THROTTLE_MS_MAX)
            return response
        try:
            if any(read.unopened for read in self._reads):
                seconds = self._store_seconds(ends_at)
                for read, log in await open_copies(self._reads, self._broker.node, seconds):
                    self._read_from_memory(read, log)
            await self._check_above_end()
            if any(read.cold for read in self._reads):
                await self._read_cold(ends_at)
            if not self._is_due and not self._lacks_room:
                await self._wait_for_more(ends_at)
            self._restore_records()
            if self._lacks_room:
                await self._wait_for_room(ends_at)
            return self.response(incremental)
        finally:
            waiting.give_back(size)
            self._reservation.release()

    async def _check_above_end(self) -> None:
        """Set the errors of offsets above the end.

        They are out of range only if this broker still leads. A deposed leader does not know the
        end of the log.
        """
        above_end = [read for read in self._reads if read.above_end]
        if not above_end:
            return
        failure = 0
        try:
            leading = await self._broker.still_leading()
        except NeveError as error:
            leading, failure = False, fetch_error(error)
        for read in above_end:
            log = read.log
            assert log is not None
            assert not isinstance(log, ReplicaLog)
            if failure:
                read.error = failure
            elif not leading or log.closed is not None:
                read.error = NOT_LEADER
            elif read.requested.offset > log.next_offset:
                read.error = _OUT_OF_RANGE

    async def _read_cold(self, ends_at: float) -> None:
        """Read the partitions whose records are not in memory, as far as there is room."""
        cold: list[tuple[PartitionRead, int]] = []
        # Other requests may have taken the room since this one arrived.
        left = min(self._bytes_left, self._reservation.room_bytes)
        candidates = [read for read in self._reads if read.cold]
        # Equal shares: a partition that is slow, damaged or nearly empty takes nothing from others.
        share = max(left // len(candidates), COLD_SHARE_BYTES_MIN)
        for read in candidates:
            if left > 0 or not (self._size or cold):
                most = max(0, min(read.requested.max_bytes, share, left))
                cold.append((read, most))
                left -= max(most, 1)
        if not cold:
            return  # records from memory fill the response
        # Reserved before anything is read, and kept for the records that are found.
        cold_bytes = sum(most for _, most in cold)
        if self._reservation.room_bytes and self._reservation.reserve(cold_bytes):
            await self._read_in_parallel(cold, ends_at)
        else:
            cold[0][0].lacks_bytes = UNKNOWN_BATCH_BYTES

    async def _wait_for_room(self, ends_at: float) -> None:
        """Wait until there is room for one batch, and read it. Give up when the time is up."""
        self._ends_now = True
        read = next(read for read in self._reads if read.lacks_bytes)
        assert read.log is not None
        try:
            async with runtime.deadline(self._store_seconds(ends_at)):
                while read.lacks_bytes and not read.error:
                    self._reservation.release()
                    size = read.lacks_bytes
                    await self._reservation.wait(size)
                    self._read_from_memory(read, read.log)
                    if read.cold:
                        await self._read_in_parallel([(read, size)], ends_at)
        except TimeoutError:
            return

    def _store_seconds(self, ends_at: float) -> float:
        """How long a response may wait for the store or for room."""
        least = self._broker.settings.fetch.cold_wait_ms / 1000
        return max(least, ends_at - runtime.monotonic())

    async def _read_in_parallel(
        self, cold: list[tuple[PartitionRead, int]], ends_at: float
    ) -> None:
        tasks = [runtime.spawn(self._read_from_store(read, most)) for read, most in cold]
        # A response without their records is valid. The downloads continue for the next request.
        try:
            await asyncio.wait(tasks, timeout=self._store_seconds(ends_at))
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _read_from_store(self, read: PartitionRead, most: int) -> None:
        assert read.log is not None
        try:
            chunk = await self._broker.reader.read(read.log, read.requested.offset, most)
            self._take(read, chunk)
            if isinstance(read.log, ReplicaLog):
                self._broker.node.replication.replicas.read(read.log)
        except NeveError as error:
            if isinstance(read.log, ReplicaLog):
                error = self._broker.node.replication.replicas.failed(read.log, error)
            read.error = self._report(read.log, read.requested.offset, error)

    def _report(self, log: ServedLog, offset: int, error: NeveError) -> int:
        """Log a failed read. Returns its error code."""
        if isinstance(error, DamagedError):
            reason = explain(error, self._broker.store_url)
            message = f"offset {offset} cannot be read: {reason}"
            self._broker.limited_log.warning(log.name, error.key, message)
        elif not isinstance(error, FencedError):
            log_line.debug("%s: fetch from %d: %s", log.name, offset, error)
        return fetch_error(error)

    async def _wait_for_more(self, ends_at: float) -> None:
        """Wait until commits have brought enough records, or the time is up."""
        logs = [(read, read.log) for read in self._reads if read.log is not None and not read.error]
        watchers = [(log, self._watcher(read)) for read, log in logs]
        for log, watcher in watchers:
            log.watch(watcher)
        self._broker.waiting_fetches[self] = None
        self.drop_records()
        try:
            self._recheck(logs)
            while not self._is_due and not self._lacks_room:
                left = ends_at - runtime.monotonic()
                if left <= 0 or not await self._wait_for_commit(left):
                    return
                changed, self._changed = list(self._changed.values()), {}
                for read in changed:
                    self._reread(read)
        finally:
            del self._broker.waiting_fetches[self]
            for log, watcher in watchers:
                log.unwatch(watcher)

    def drop_records(self) -> None:
        """Keep only the sizes of records, and reserve nothing, while waiting."""
        for read in self._reads:
            if read.chunk is not None:
                read.chunk = read.chunk._replace(parts=[])
        self._reservation.release()

    def _restore_records(self) -> None:
        """Read the records again that `drop_records` has dropped."""
        for read in self._reads:
            if read.chunk is not None and read.chunk.size and not read.chunk.parts:
                self._reread(read)

    def _recheck(self, logs: list[tuple[PartitionRead, ServedLog]]) -> None:
        """Read again what changed after the first read and before the watchers.

        That is partitions with new commits, and those that were lost meanwhile: a log that is
        closed already notifies no watcher.
        """
        for read, log in logs:
            has_records = read.chunk is None and read.requested.offset < log.high_watermark
            if has_records or log.closed is not None:
                self._reread(read)

    def _watcher(self, read: PartitionRead) -> Callable[[ServedLog], None]:
        def committed(log: ServedLog) -> None:  # noqa: ARG001
            self._changed[id(read)] = read
            if self._woken is not None and not self._woken.done():
                self._woken.set_result(None)

        return committed

    def end_wait(self) -> None:
        """Respond with the records found so far. Other responses may wait behind this one."""
        self._ends_now = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _wait_for_commit(self, seconds: float) -> bool:
        """Wait for a commit or `end_wait`. Returns False if the time is up."""
        if self._changed:
            return True
        self._woken = asyncio.get_running_loop().create_future()
        try:
            async with runtime.deadline(seconds):
                await self._woken
        except TimeoutError:
            return False
        finally:
            self._woken = None
        return True

    def _reread(self, read: PartitionRead) -> None:
        """Read a partition again after a commit, in place of the earlier result."""
        assert read.log is not None
        if read.chunk is not None:
            self._size -= read.chunk.size
            self._bytes_left += read.chunk.size
            if read.chunk.parts:
                self._reservation.put_back(read.chunk.size)
            read.chunk = None
        self._read_from_memory(read, read.log)

    # -- responding --------------------------------------------------------------------------

    def response(self, incremental: bool) -> FetchResponse:
        """Build the response. An incremental one has only the partitions that have changed."""
        by_topic: dict[tuple[str, bytes], list[FetchResponse.Partition]] = {}
        refused: list[tuple[FetchPartition, FetchResponse.Partition]] = []
        served = []
        for read in self._reads:
            requested = read.requested
            if read.unopened is not None:
                read.error = NOT_LEADER
            if read.has_records:
                served.append(requested.key)
            if not incremental or read.has_changed:
                rows = by_topic.setdefault((requested.topic, requested.topic_id), [])
                if read.error:
                    row = read.refusal(read_committed=self._read_committed)
                    refused.append((requested, row))
                else:
                    row = read.response(read_committed=self._read_committed)
                rows.append(row)
        self._reservation.release()
        if self._session is not None:
            self._session.move_to_end(served)
        self._broker.metrics.fetch_bytes += self._size
        response = FetchResponse(
            session_id=NO_SESSION if self._session is None else self._session.session_id,
            responses=[
                _Topic(topic=name, topic_id=topic_id, partitions=rows)
                for (name, topic_id), rows in by_topic.items()
            ],
        )
        if refused:
            leaders = NamedLeaders(self._broker.cluster, by_id=self._consumer.by_id)
            name_leaders(response, refused, leaders)
        return response
