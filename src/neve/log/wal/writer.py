"""The writer of one broker process's WAL stream: group commit, pipelined uploads, ordered commit.

Records of all partitions share an object. The writer uploads the open object when it has waited for
the linger, is large enough, or (without a linger) once it has enough bytes next to the uploads in
flight and an upload slot is free. Several uploads run at once, but numbers commit in order: a
record is acknowledged when its object and every one before it are durable.

An upload is retried with the same bytes until its outcome is known. A seal in its place means that
another process took over: all appends from there on fail, and this stream is never written again.
So there is no gap, and no commit after a failure. `append` is synchronous and does not wait for
I/O; `wal.buffer.bytes` limits the bytes that are appended and not yet committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from neve import runtime
from neve.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    ExistsError,
    FencedError,
    FullError,
    NeveError,
    NotFoundError,
    UnavailableError,
)
from neve.log.downloads import fetch_prefix_checked
from neve.log.keys import wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.object import HEADER_BYTES, Header, Kind, Slice, SliceMeta
from neve.log.wal.pending import Commit, Flight, OpenObject
from neve.log.wal.shared_check import SharedCheck
from neve.settings import WalSettings
from neve.store.port import Buffer, Store

__all__ = ["Commit", "CommittedObject", "WalWriter"]

RETRY_PAUSE_MS = 20
RETRY_PAUSE_MS_MAX = 2_000
# A number that is unreadable this many times in a row, with growing pauses, is damaged.
DAMAGED_READS_MAX = 6


class CommittedObject(NamedTuple):
    """An object that was just committed: its number, its directory, and its bytes."""

    number: int
    slices: tuple[Slice, ...]
    data: memoryview


class WalWriter:
    """One stream, from its first number to its end. Owned by the process with this incarnation.

    An open object waits for `linger_ms`, and until it has `join_bytes` for each upload in flight.

    `on_commit` is called in the order of numbers, before waiting callers resume; `on_end` once,
    when the stream can no longer be written.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        settings: WalSettings,
        *,
        linger_ms: int = 0,
        join_bytes: int = 0,
        on_commit: Callable[[CommittedObject], None] = lambda _: None,
        on_end: Callable[[NeveError], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._inflight_max = settings.inflight_max
        self._buffer_bytes = settings.buffer_bytes
        self._object_bytes = settings.object_bytes
        self._linger_seconds = linger_ms / 1000
        self._join_bytes = join_bytes
        self._on_commit = on_commit
        self._on_end = on_end
        self._author = runtime.token(wal_object.AUTHOR_BYTES)
        # In the order of their future numbers; only the last one takes more batches.
        self._waiting: deque[OpenObject] = deque()
        self._flights: deque[Flight] = deque()
        self._next_number = 0
        self._appended = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks = runtime.Tasks(on_failure=self._task_failed)
        self._leading_check = SharedCheck(self._check_for_seal)
        self.incarnation = incarnation
        self.keys = wal_stream(incarnation)
        self.buffered_bytes = 0
        self.committed_end = 0
        self.ended: NeveError | None = None
        self._tasks.start(self._cut_and_upload(), name=f"wal-{incarnation}")

    # -- appending ---------------------------------------------------------------------------

    def append(self, meta: SliceMeta, batch: Buffer, *, admitted: bool = False) -> Commit:
        """Add one partition's batch or batches to the open object; its offsets must ascend.

        Raises FullError if the buffer is full: await `room` and try again. An `admitted` batch is
        accepted even then: its caller checked `full` before the first batch of the request. The
        bytes must not change until they are committed or refused.
        """
        if self.ended is not None:
            raise self.ended
        if self.buffered_bytes >= self._buffer_bytes and not admitted:
            raise FullError(
                f"{self.buffered_bytes} bytes wait for the store (wal.buffer.bytes): wait"
            )
        if self._waiting and not self._waiting[-1].closed:
            current = self._waiting[-1]
        else:
            current = OpenObject(runtime.monotonic())
            self._waiting.append(current)
            self._appended.set()
        self.buffered_bytes += len(batch)
        size = current.add(meta, batch)
        if size >= self._object_bytes:
            current.close()
        if current.closed or size >= self._join_bytes * len(self._flights):
            self._changed.set()
        return current.commit

    def reserve(self, size: int) -> None:
        """Count bytes that are about to be appended, until `unreserve` is called."""
        self.buffered_bytes += size

    def unreserve(self, size: int) -> None:
        self.buffered_bytes -= size
        self._changed.set()

    @property
    def full(self) -> bool:
        return self.buffered_bytes >= self._buffer_bytes

    async def room(self) -> None:
        """Wait until there is room to append. Raises the error if the stream has ended."""
        while self.full and self.ended is None:
            await self._change()
        if self.ended is not None:
            raise self.ended

    async def _change(self) -> None:
        """Wait until an upload is decided, or an open object need not wait any longer."""
        self._changed.clear()
        await self._changed.wait()

    # -- cutting and uploading ---------------------------------------------------------------

    async def _cut_and_upload(self) -> None:
        while True:
            await self._appended.wait()
            await self._linger()
            while self._window_is_full():
                await self._change()
            if self._waiting:
                self._upload(self._waiting.popleft())
            if not self._waiting:
                self._appended.clear()

    async def _linger(self) -> None:
        """Wait until the oldest open object is large enough, old enough, or flushed.

        It cannot commit before the uploads in flight, so waiting delays it by one upload at most.
        """
        if not self._waiting:
            return
        oldest = self._waiting[0]
        while not oldest.closed and oldest.size_bytes < self._join_bytes * len(self._flights):
            await self._change()
        left = oldest.opened_at + self._linger_seconds - runtime.monotonic()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with runtime.deadline(left):
                    await oldest.ready.wait()

    def _window_is_full(self) -> bool:
        """Return whether the next number must wait until the one a window below it is durable.

        All numbers below that one are durable then too.
        """
        if not self._flights:
            return False
        return self._next_number - self._flights[0].number >= self._inflight_max

    def _upload(self, filled: OpenObject) -> None:
        try:
            flight = self._cut(filled)
        except Exception as failure:  # fails every batch of the object
            self.buffered_bytes -= filled.size_bytes
            filled.commit.fail(self._broke(failure, self._next_number))
            return
        self._next_number += 1
        self._flights.append(flight)
        flight.upload = self._tasks.start(self._fly(flight), name=f"wal-put-{flight.number}")

    def _cut(self, filled: OpenObject) -> Flight:
        number = self._next_number
        encoded = wal_object.encode(
            Kind.DATA,
            filled.rows(),
            incarnation=self.incarnation,
            number=number,
            author=self._author,
            created_ms=runtime.now_ms(),
        )
        filled.commit.number = number
        return Flight(number, filled.commit, filled.size_bytes, encoded.data, encoded.slices)

    async def _fly(self, flight: Flight) -> None:
        key = self.keys.number(flight.number)
        try:
            await self._create(key, flight)
        except FencedError as fence:
            self._end(fence, flight.number)
        except NeveError as error:
            self._end(_cannot_write(key, error), flight.number)
        else:
            self._durable(flight)

    async def _create(self, key: str, flight: Flight) -> None:
        """Create the number, and retry with the same bytes until it is known to be ours."""
        backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        damaged_reads = 0
        while True:
            try:
                await self._store.create(key, flight.data)
                return
            except ExistsError:
                try:
                    if await self._is_ours(flight.number):
                        return
                except DamagedError:
                    damaged_reads += 1
                    if damaged_reads == DAMAGED_READS_MAX:
                        raise
            except (ConflictError, UnavailableError):
                pass  # undecided: retry with the same bytes
            await backoff.pause()

    async def _is_ours(self, number: int) -> bool:
        """Return True if the number is our object; False if that is not known yet.

        Raises FencedError if it is another process's object.
        """
        try:
            header = await self._header(number)
        except (NotFoundError, UnavailableError):
            return False  # refused although it does not exist, or a failed read: try again
        if self._wrote(header):
            return True
        raise self._fenced_by(header, number)

    async def _header(self, number: int) -> Header:
        key = self.keys.number(number)
        return await fetch_prefix_checked(
            self._store,
            key,
            HEADER_BYTES,
            lambda data: wal_object.decode_header(
                data, key, incarnation=self.incarnation, number=number
            ),
        )

    def _fenced_by(self, header: Header, number: int) -> FencedError:
        return FencedError(
            f"{self.keys.number(number)} holds a {header.kind.name.lower()} of another process: "
            f"incarnation {self.incarnation} is fenced"
        )

    def _wrote(self, header: Header) -> bool:
        return header.author == self._author and header.kind is Kind.DATA

    # -- deciding ----------------------------------------------------------------------------

    def _durable(self, flight: Flight) -> None:
        flight.durable = True
        while self._flights and self._flights[0].durable:
            self._commit(self._flights.popleft())
        self._changed.set()

    def _commit(self, flight: Flight) -> None:
        self.committed_end = flight.number + 1
        self.buffered_bytes -= flight.size_bytes
        try:
            self._on_commit(CommittedObject(flight.number, flight.slices, flight.data))
        except Exception as failure:  # at once, before the next number can commit
            flight.commit.fail(self._broke(failure))
        else:
            flight.commit.succeed()

    def _end(self, error: NeveError, number: int) -> None:
        """End the stream: refuse all from `number` on. Uploads below may still commit."""
        first_end = self.ended is None
        self.ended = self.ended or error
        refused = [flight for flight in self._flights if flight.number >= number]
        current = asyncio.current_task() if refused else None
        for flight in refused:
            self._flights.remove(flight)
            self.buffered_bytes -= flight.size_bytes
            flight.commit.fail(error)
            if flight.upload is not None and flight.upload is not current:
                flight.upload.cancel()
        while self._waiting:
            unsent = self._waiting.popleft()
            self.buffered_bytes -= unsent.size_bytes
            unsent.commit.fail(error)
        self._changed.set()
        if first_end:
            self._on_end(error)

    def _task_failed(self, failure: BaseException) -> None:
        self._broke(failure)

    def _broke(self, failure: BaseException, number: int | None = None) -> NeveError:
        """End the stream because of a bug, so that it cannot cause false acknowledgements."""
        error = ClosedError(f"WAL stream {self.incarnation} broke: {failure!r}")
        error.__cause__ = failure
        self._end(error, self.committed_end if number is None else number)
        return error

    # -- leading, closing --------------------------------------------------------------------

    async def still_leading(self) -> bool:
        """Return True if no other process had taken over when the call began.

        Otherwise the stream has ended. One check serves all callers that wait.
        """
        return self.ended is None and await self._leading_check.run()

    async def _check_for_seal(self) -> bool:
        """Walk from the lowest number not known to be committed to the first that is not ours.

        A number of ours whose first upload began after the check is proof too: a successor seals
        the stream, and this writer creates no number beyond a seal. Without this rule, a check
        would never catch up with a stream that is written faster than it is read.
        """
        number = self.committed_end
        untried = self._next_number
        while self.ended is None and max(number, self.committed_end) <= untried:
            number = max(number, self.committed_end)
            # A number that was never uploaded can only be missing or a seal.
            idle = not self._flights
            try:
                header = await self._header(number)
            except NotFoundError:
                passed = None
                if not idle:
                    passed = await greatest_checkpoint(self._store, self.keys, above=number)
                if passed is None:
                    break
                number = passed  # our object was rolled up and trimmed
                continue
            if not self._wrote(header):
                self._end(self._fenced_by(header, number), number)
                return False
            number += 1  # durable, as is all below it, though the upload has not returned yet
        return self.ended is None

    def fence(self, error: NeveError) -> None:
        """End the stream, because this process is fenced: refuse all undecided appends."""
        self._end(error, self.committed_end)

    async def flush(self) -> None:
        """Wait until all appends so far are committed. Raises the error if one was refused."""
        commits = [flight.commit for flight in self._flights]
        for filled in self._waiting:
            filled.close()
            self._changed.set()
            commits.append(filled.commit)
        for commit in commits:
            await commit.wait()

    async def close(self) -> None:
        """Commit all appends if possible, then stop."""
        try:
            if self.ended is None:
                await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Stop at once, as a crash would; undecided appends are refused."""
        self._end(ClosedError(f"WAL stream {self.incarnation} was closed"), self.committed_end)
        await self._leading_check.close()
        await self._tasks.close()


def _cannot_write(key: str, error: NeveError) -> NeveError:
    ended = FencedError(f"{key} cannot be written ({error}): this incarnation has ended")
    ended.__cause__ = error
    return ended
