"""Fetch: what is in memory is answered at once; otherwise the request waits, or reads the store.

Partitions are served side by side: one that must be read from the store holds up neither the others
nor the answer beyond max_wait. A waiting request is woken by a commit, never by looking again.

Records take their bytes of `fetch.unsent.bytes` when they are found. Where there is no room, one
batch waits for it, and the answer has none if that takes too long: the client asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.error_codes import code_of, fetch_error
from neve.broker.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    SessionError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from neve.broker.fetch.partition import FetchPartition
from neve.broker.fetch.pinned import freed
from neve.broker.fetch.reservation import Reservation
from neve.broker.fetch.sessions import NO_SESSION, Session
from neve.errors import DamagedError, FencedError, NeveError
from neve.log.reading.damage import explain
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.log.reading.record_chunk import RecordChunk
from neve.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.log.partition import PartitionLog

log_line = logging.getLogger("neve.broker.fetch")

_TOPIC_IDS_SINCE = 13
_READ_COMMITTED = 1
_Topic = FetchResponse.Topic
_Partition = FetchResponse.Partition
_NOTHING = b""
_UNKNOWN = code_of(UnknownPartitionError)
_UNKNOWN_ID = code_of(UnknownTopicIdError)
_NOT_LEADER = code_of(NotLeaderError)
_FENCED_EPOCH = code_of(FencedLeaderEpochError)
_UNKNOWN_EPOCH = code_of(UnknownLeaderEpochError)
_OUT_OF_RANGE = code_of(OffsetOutOfRangeError)
# What a batch is taken for whose size is not known before it is read: as large as most may be.
UNKNOWN_BATCH_BYTES = 1024 * 1024
# What one partition of a fetch takes up that waits.
WAITING_ROW_BYTES = 1024
# How long a client is to wait, at most, that would wait for records where too many do.
THROTTLE_MS_MAX = 5_000
# A fetch of more partitions leaves some of the room to those of fewer.
FEW_ROWS = 16
# Below this, reading more partitions at once costs more than it gives.
COLD_SHARE_BYTES_LEAST = 64 * 1024


def fetch(
    broker: Broker, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[object, None, FetchResponse]:
    """Returns a response, or a coroutine where that takes time."""
    uses_ids = context.api_version >= _TOPIC_IDS_SINCE
    try:
        session, wanted, incremental = broker.sessions.begin(request, uses_ids)
    except SessionError as error:
        return FetchResponse(error_code=fetch_error(error), session_id=NO_SESSION)
    room = Reservation(broker.unsent, is_reader=context.is_reader)
    work = _Fetch(broker, request, session, wanted, uses_ids=uses_ids, room=room)
    work.read_now()
    if work.is_enough:
        return work.response(incremental)
    return work.finish(incremental)


class _PartitionRead:
    """One partition of this request: what was found so far."""

    __slots__ = ("chunk", "cold", "error", "lacks_bytes", "log", "unsure", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.log: PartitionLog | None = None
        self.chunk: RecordChunk | None = None
        self.error = 0
        self.cold = False  # its records are not in memory
        self.lacks_bytes = 0  # it found records for which there was no room
        self.unsure = False  # it asks for more than we know of: do we still lead?


class _Fetch:
    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        session: Session | None,
        wanted: list[FetchPartition],
        *,
        uses_ids: bool,
        room: Reservation,
    ) -> None:
        self._broker = broker
        self._session = session
        self._uses_ids = uses_ids
        bytes_max = broker.settings.fetch.response_bytes_max
        self._bytes_left: int = min(request.max_bytes, bytes_max, room.room_bytes)
        # Who asks for records waits for one at least, however little room there is for them.
        least = min(1, request.min_bytes)
        self._min_bytes: int = max(least, min(request.min_bytes, self._bytes_left))
        # A connection is not read while it has asked for enough, and so not seen to be gone.
        wait_ms = min(request.max_wait_ms, broker.settings.broker.connection_idle_ms)
        self._wait_seconds = wait_ms / 1000
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._size = 0
        self._room = room
        self._rows = [_PartitionRead(row) for row in wanted]
        self._hurried = False
        self._woken: asyncio.Future[None] | None = None
        self._changed: dict[int, _PartitionRead] = {}

    # -- reading -----------------------------------------------------------------------------

    def read_now(self) -> None:
        """Everything that memory can answer."""
        for row in self._rows:
            self._look_up(row)
            if row.log is not None:
                self._read_row(row, row.log)

    def _look_up(self, row: _PartitionRead) -> None:
        wanted, node = row.wanted, self._broker.node
        state, by_id = node.cluster.state, self._uses_ids
        topic = state.topic_by_id(wanted.topic_id) if by_id else state.topic(wanted.topic)
        if topic is None:
            row.error = _UNKNOWN_ID if by_id else _UNKNOWN
            return
        leader = node.leader_of(topic.id_bytes, wanted.index)
        if leader is None:
            known = 0 <= wanted.index < len(topic.partitions)
            row.error = _NOT_LEADER if known else _UNKNOWN
        elif 0 <= wanted.leader_epoch < leader.log.epoch:
            row.error = _FENCED_EPOCH
        elif wanted.leader_epoch > leader.log.epoch:
            row.error = _UNKNOWN_EPOCH
        else:
            row.log = leader.log

    def _read_row(self, row: _PartitionRead, log: PartitionLog) -> None:
        """Read from memory what still fits; say what else must be done."""
        offset = row.wanted.offset
        row.cold = row.unsure = False
        row.lacks_bytes = 0
        if log.closed is not None:
            row.error = _NOT_LEADER
        elif offset < log.start_offset:
            row.error = _OUT_OF_RANGE
        elif offset > log.high_watermark:
            row.unsure = offset > log.next_offset
        elif offset < log.high_watermark and (self._bytes_left > 0 or not self._size):
            most = min(row.wanted.max_bytes, self._bytes_left)
            chunk = self._broker.reader.read_now(log, offset, most)
            if chunk is None:
                row.cold = True
            else:
                self._take(row, chunk)

    def _take(self, row: _PartitionRead, chunk: RecordChunk) -> None:
        # At least one batch whatever its size, but only for the first partition that has any.
        if self._size and chunk.size > self._bytes_left:
            return
        if not self._room.use(chunk.size):
            row.lacks_bytes = chunk.size
            return
        piled = self._broker.unsent.is_piling_up
        row.chunk = freed(chunk, piled=piled) if piled or row.cold else chunk
        self._size += chunk.size
        self._bytes_left -= chunk.size

    @property
    def is_enough(self) -> bool:
        """Whether nothing need be read from the store, and what there is may be answered."""
        if any(row.cold or row.unsure for row in self._rows) or self._lacks_room:
            return False
        return self._is_due

    @property
    def _lacks_room(self) -> bool:
        return not self._size and any(row.lacks_bytes for row in self._rows)

    @property
    def _is_due(self) -> bool:
        return (
            self._size >= self._min_bytes
            or self._wait_seconds <= 0
            or self._hurried
            or any(row.error for row in self._rows)
            or not self._rows
        )

    # -- taking time -------------------------------------------------------------------------

    async def finish(self, incremental: bool) -> FetchResponse:
        """Read what is cold, wait for what is not there yet, and answer.

        Where too much waits already, answer at once: the client is to wait before it asks again.
        """
        ends_at = runtime.monotonic() + self._wait_seconds
        waiting, size = self._broker.waiting, WAITING_ROW_BYTES * len(self._rows)
        spare = waiting.bytes_max // 4 if len(self._rows) > FEW_ROWS else 0
        if not waiting.try_take(size, spare=spare):
            response = self.response(incremental)
            response.throttle_time_ms = min(int(self._wait_seconds * 1000), THROTTLE_MS_MAX)
            return response
        try:
            await self._make_sure_of_leading()
            if any(row.cold for row in self._rows):
                await self._read_cold(ends_at)
            if not self._is_due and not self._lacks_room:
                await self._wait_for_more(ends_at)
            if self._lacks_room:
                await self._wait_for_room(ends_at)
            return self.response(incremental)
        finally:
            waiting.give_back(size)
            self._room.release()

    async def _make_sure_of_leading(self) -> None:
        """Check that this broker still leads before an offset above the end is out of range."""
        unsure = [row for row in self._rows if row.unsure]
        if not unsure:
            return
        failure = 0
        try:
            leading = await self._broker.still_leading()
        except NeveError as error:
            leading, failure = False, fetch_error(error)
        for row in unsure:
            assert row.log is not None
            if failure:
                row.error = failure
            elif not leading or row.log.closed is not None:
                row.error = _NOT_LEADER
            elif row.wanted.offset > row.log.next_offset:
                row.error = _OUT_OF_RANGE

    async def _read_cold(self, ends_at: float) -> None:
        cold: list[tuple[_PartitionRead, int]] = []
        # Others may have taken the room since this request came.
        left = min(self._bytes_left, self._room.room_bytes)
        wanting = [row for row in self._rows if row.cold]
        # A part for each: one that is slow, damaged or nearly empty takes nothing from the others.
        share = max(left // len(wanting), COLD_SHARE_BYTES_LEAST)
        for row in wanting:
            if left > 0 or not (self._size or cold):
                most = max(0, min(row.wanted.max_bytes, share, left))
                cold.append((row, most))
                left -= max(most, 1)
        if not cold:
            return  # what is in memory fills the answer
        # Taken before anything is read, and kept for what is found.
        wanted_bytes = sum(most for _, most in cold)
        if self._room.room_bytes and self._room.ahead(wanted_bytes):
            await self._read_side_by_side(cold, ends_at)
        else:
            cold[0][0].lacks_bytes = UNKNOWN_BATCH_BYTES

    async def _wait_for_room(self, ends_at: float) -> None:
        """Wait until there is room for one batch, and read it; or answer without records."""
        self._hurried = True
        row = next(row for row in self._rows if row.lacks_bytes)
        assert row.log is not None
        try:
            async with runtime.deadline(self._store_seconds(ends_at)):
                while row.lacks_bytes and not row.error:
                    self._room.release()
                    size = row.lacks_bytes
                    await self._room.wait(size)
                    self._read_row(row, row.log)
                    if row.cold:
                        await self._read_side_by_side([(row, size)], ends_at)
        except TimeoutError:
            return

    def _store_seconds(self, ends_at: float) -> float:
        """How long an answer may wait for anything but records that are to come."""
        least = self._broker.settings.fetch.cold_wait_ms / 1000
        return max(least, ends_at - runtime.monotonic())

    async def _read_side_by_side(
        self, cold: list[tuple[_PartitionRead, int]], ends_at: float
    ) -> None:
        tasks = [runtime.spawn(self._read_cold_row(row, most)) for row, most in cold]
        # An answer without them is right too: reading goes on, and the next request finds more.
        try:
            await asyncio.wait(tasks, timeout=self._store_seconds(ends_at))
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _read_cold_row(self, row: _PartitionRead, most: int) -> None:
        assert row.log is not None
        try:
            chunk = await self._broker.reader.read(row.log, row.wanted.offset, most)
            self._take(row, chunk)
        except NeveError as error:
            row.error = self._report(row.log, row.wanted.offset, error)

    def _report(self, log: PartitionLog, offset: int, error: NeveError) -> int:
        if isinstance(error, DamagedError):
            reason = explain(error, self._broker.store_url)
            message = f"offset {offset} cannot be read: {reason}"
            self._broker.complaints.warning(log.name, error.key, message)
        elif not isinstance(error, FencedError):
            log_line.debug("%s: fetch from %d: %s", log.name, offset, error)
        return fetch_error(error)

    async def _wait_for_more(self, ends_at: float) -> None:
        logs = [(row, row.log) for row in self._rows if row.log is not None and not row.error]
        watchers = [(log, self._watcher(row)) for row, log in logs]
        for log, watcher in watchers:
            log.watch(watcher)
        self._broker.waiting_fetches[self] = None
        self._let_go()
        try:
            self._recheck(logs)
            while not self._is_due and not self._lacks_room:
                left = ends_at - runtime.monotonic()
                if left <= 0 or not await self._wake_up(left):
                    return
                changed, self._changed = list(self._changed.values()), {}
                for row in changed:
                    self._reread(row)
        finally:
            del self._broker.waiting_fetches[self]
            for log, watcher in watchers:
                log.unwatch(watcher)
            for row in self._rows:
                if row.chunk is not None and row.chunk.size and not row.chunk.parts:
                    self._reread(row)

    def _let_go(self) -> None:
        """Hold no records while waiting for more: only how much there is."""
        for row in self._rows:
            if row.chunk is not None:
                row.chunk = row.chunk._replace(parts=[])
        self._room.release()

    def _recheck(self, logs: list[tuple[_PartitionRead, PartitionLog]]) -> None:
        """What was committed between the first look and the watching."""
        for row, log in logs:
            if row.chunk is None and row.wanted.offset < log.high_watermark:
                self._reread(row)

    def _watcher(self, row: _PartitionRead) -> Callable[[PartitionLog], None]:
        def committed(log: PartitionLog) -> None:  # noqa: ARG001
            self._changed[id(row)] = row
            if self._woken is not None and not self._woken.done():
                self._woken.set_result(None)

        return committed

    def hurry(self) -> None:
        """The broker stops: answer with what there is. Other answers may wait behind this one."""
        self._hurried = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _wake_up(self, seconds: float) -> bool:
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

    def _reread(self, row: _PartitionRead) -> None:
        """More was committed: what was found before is replaced by all there is now."""
        assert row.log is not None
        if row.chunk is not None:
            self._size -= row.chunk.size
            self._bytes_left += row.chunk.size
            if row.chunk.parts:
                self._room.put_back(row.chunk.size)
            row.chunk = None
        self._read_row(row, row.log)

    # -- answering ---------------------------------------------------------------------------

    def response(self, incremental: bool) -> FetchResponse:
        by_topic: dict[tuple[str, bytes], list[_Partition]] = {}
        served = []
        for row in self._rows:
            wanted = row.wanted
            if row.chunk is not None and row.chunk.size:
                served.append(wanted.key)
            if not incremental or self._is_news(row):
                rows = by_topic.setdefault((wanted.topic, wanted.topic_id), [])
                rows.append(self._partition(row))
        self._room.release()
        if self._session is not None:
            self._session.to_the_end(served)
        self._broker.metrics.fetch_bytes += self._size
        return FetchResponse(
            session_id=NO_SESSION if self._session is None else self._session.session_id,
            responses=[
                _Topic(topic=name, topic_id=topic_id, partitions=rows)
                for (name, topic_id), rows in by_topic.items()
            ],
        )

    def _is_news(self, row: _PartitionRead) -> bool:
        log, wanted = row.log, row.wanted
        if row.error or log is None or (row.chunk is not None and row.chunk.size):
            return True
        return wanted.sent_watermark != log.high_watermark or wanted.sent_start != log.start_offset

    def _partition(self, row: _PartitionRead) -> _Partition:
        log, wanted = row.log, row.wanted
        watermark, start = (-1, -1) if log is None else (log.high_watermark, log.start_offset)
        wanted.sent_watermark, wanted.sent_start = watermark, start
        if row.error:
            watermark = -1
        return _Partition(
            partition_index=wanted.index,
            error_code=row.error,
            high_watermark=watermark,
            last_stable_offset=watermark,
            log_start_offset=start,
            aborted_transactions=[] if self._read_committed else None,
            records=_NOTHING if row.chunk is None or row.error else row.chunk.parts,
        )
