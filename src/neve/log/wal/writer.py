"""The writer of one broker process's WAL stream: group commit, pipelined uploads, ordered commit.

Records of all partitions share an object. An object is cut when it has waited long enough, is large
enough, or (without a linger) as soon as an upload slot is free. Several uploads run at once, but
numbers commit in order: a record is acknowledged when its object and every one before it is there.

An upload is repeated with the same bytes until its fate is known. A seal in its place means that
somebody took over: everything from there on is refused, and this stream never writes again. So
there is no hole, and no commit past a failure. Nobody who appends waits for I/O: `append` is an
ordinary call, and what is appended and not yet committed is bounded by `wal.buffer.bytes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
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
from neve.log.keys import wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.object import HEADER_BYTES, Kind, Slice, SliceMeta
from neve.settings import WalSettings
from neve.store.port import Buffer, Store

RETRY_PAUSE_SECONDS = 0.02
RETRY_PAUSE_SECONDS_MAX = 2.0


class CommittedObject(NamedTuple):
    """What the stream just committed: its number, its directory, and the whole object's bytes."""

    number: int
    slices: tuple[Slice, ...]
    data: memoryview


class Commit:
    """When, and whether, what was appended is committed. Shared by all records of one object."""

    __slots__ = ("_future", "number")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A failure is told to whoever waits; that nobody did is no mistake.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.number = -1

    async def wait(self) -> None:
        """Return when committed; raise FencedError, or what else ended the stream."""
        await asyncio.shield(self._future)

    @property
    def done(self) -> bool:
        return self._future.done()

    def then(self, call: Callable[[asyncio.Future[None]], None]) -> None:
        """Call back when decided, without a task of its own."""
        self._future.add_done_callback(call)

    def succeed(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def fail(self, error: NeveError) -> None:
        if not self._future.done():
            self._future.set_exception(error)


@dataclass
class _OpenSlice:
    base_offset: int
    last_offset: int
    max_timestamp: int
    parts: list[Buffer]


@dataclass
class _OpenObject:
    """What the next object will hold."""

    commit: Commit
    opened_at: float
    slices: dict[tuple[bytes, int, int], _OpenSlice] = field(default_factory=dict)
    bytes: int = 0

    def add(self, meta: SliceMeta, batch: Buffer) -> None:
        key = (meta.topic_id, meta.partition, meta.leader_epoch)
        found = self.slices.get(key)
        if found is None:
            self.slices[key] = _OpenSlice(
                meta.base_offset, meta.last_offset, meta.max_timestamp, [batch]
            )
        else:
            found.parts.append(batch)
            found.last_offset = meta.last_offset
            found.max_timestamp = max(found.max_timestamp, meta.max_timestamp)
        self.bytes += len(batch)


@dataclass
class _Flight:
    """One object on its way."""

    number: int
    commit: Commit
    size: int
    data: bytes
    slices: tuple[Slice, ...]
    durable: bool = False
    upload: asyncio.Task[None] | None = None


class WalWriter:
    """One stream, from its first number to its end. Owned by the process whose incarnation it is.

    `on_commit` is called in the order of numbers, before those who wait are told; `on_end` once,
    when the stream can no longer be written.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        settings: WalSettings,
        *,
        linger_ms: int = 0,
        on_commit: Callable[[CommittedObject], None] = lambda _: None,
        on_end: Callable[[NeveError], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._linger_seconds = linger_ms / 1000
        self._on_commit = on_commit
        self._on_end = on_end
        self._author = runtime.token(wal_object.AUTHOR_BYTES)
        self._open: _OpenObject | None = None
        self._flights: deque[_Flight] = deque()
        self._next_number = 0
        self._appended = asyncio.Event()
        self._cut_now = asyncio.Event()
        self._settled = asyncio.Event()
        self._tasks = runtime.Tasks(on_failure=self._broke)
        self._look: asyncio.Task[bool] | None = None
        self._next_look: asyncio.Task[bool] | None = None
        self.incarnation = incarnation
        self.keys = wal_stream(incarnation)
        self.buffered_bytes = 0
        self.committed_end = 0
        self.ended: NeveError | None = None
        self._tasks.start(self._cut_and_upload(), name=f"wal-{incarnation}")

    # -- appending ---------------------------------------------------------------------------

    def append(self, meta: SliceMeta, batch: Buffer) -> Commit:
        """Take one partition's batch or batches; offsets of a partition must ascend.

        FullError where the buffer is full: await `room` and try again. The bytes must not change
        until they are committed or refused.
        """
        if self.ended is not None:
            raise self.ended
        if self.full:
            raise FullError(
                f"{self.buffered_bytes} bytes wait for the store (wal.buffer.bytes): wait"
            )
        if self._open is None:
            self._open = _OpenObject(Commit(), runtime.monotonic())
            self._appended.set()
        current = self._open
        current.add(meta, batch)
        self.buffered_bytes += len(batch)
        if current.bytes >= self._settings.object_bytes:
            self._cut_now.set()
        return current.commit

    @property
    def full(self) -> bool:
        return self.buffered_bytes >= self._settings.buffer_bytes

    async def room(self) -> None:
        """Wait until there is room to append; raises when the stream has ended."""
        while self.full and self.ended is None:
            await self._settlement()
        if self.ended is not None:
            raise self.ended

    async def _settlement(self) -> None:
        """Wait until some flight is decided."""
        self._settled.clear()
        await self._settled.wait()

    # -- cutting and uploading ---------------------------------------------------------------

    async def _cut_and_upload(self) -> None:
        while True:
            await self._appended.wait()
            await self._linger()
            while self._window_is_full():
                await self._settlement()
            self._upload_next()

    async def _linger(self) -> None:
        if self._open is None or self._linger_seconds == 0:
            return
        left = self._open.opened_at + self._linger_seconds - runtime.monotonic()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with runtime.deadline(left):
                    await self._cut_now.wait()

    def _window_is_full(self) -> bool:
        """Number n is not tried before n minus the window is durable, and so all below that."""
        if not self._flights:
            return False
        return self._next_number - self._flights[0].number >= self._settings.inflight_max

    def _upload_next(self) -> None:
        current, self._open = self._open, None
        self._appended.clear()
        self._cut_now.clear()
        if current is None or self.ended is not None:
            return
        flight = self._cut(current)
        self._flights.append(flight)
        flight.upload = self._tasks.start(self._upload(flight), name=f"wal-put-{flight.number}")

    def _cut(self, current: _OpenObject) -> _Flight:
        number = self._next_number
        self._next_number += 1
        rows = [
            (
                SliceMeta(*key, row.base_offset, row.last_offset, row.max_timestamp),
                row.parts,
            )
            for key, row in current.slices.items()
        ]
        data, slices = wal_object.encode_with_slices(
            Kind.DATA,
            rows,
            incarnation=self.incarnation,
            number=number,
            author=self._author,
            created_ms=runtime.now_ms(),
        )
        current.commit.number = number
        return _Flight(number, current.commit, current.bytes, data, slices)

    async def _upload(self, flight: _Flight) -> None:
        key = self.keys.number(flight.number)
        pause = RETRY_PAUSE_SECONDS
        while True:
            try:
                await self._store.create(key, flight.data)
                return self._durable(flight)
            except ExistsError:
                try:
                    if await self._is_ours(key, flight.number):
                        return self._durable(flight)
                except FencedError as fence:
                    return self._end(fence, flight.number)
            except (ConflictError, UnavailableError):
                pass  # undecided: the same bytes again
            except NeveError as error:
                return self._end(_cannot_write(key, error), flight.number)
            await runtime.sleep(pause * (0.75 + runtime.chance().random() / 2))
            pause = min(2 * pause, RETRY_PAUSE_SECONDS_MAX)

    async def _is_ours(self, key: str, number: int) -> bool:
        """Whether the number holds our object; False where that cannot be told yet."""
        try:
            data = await self._store.get_range(key, 0, HEADER_BYTES)
            header = wal_object.decode_header(
                data, key, incarnation=self.incarnation, number=number
            )
        except (NotFoundError, UnavailableError, DamagedError):
            return False  # refused although nothing is there, a failed or a torn read: try again
        if header.author == self._author and header.kind is Kind.DATA:
            return True
        raise FencedError(
            f"{key} holds a {header.kind.name.lower()} of another process: "
            f"incarnation {self.incarnation} is fenced"
        )

    # -- deciding ----------------------------------------------------------------------------

    def _durable(self, flight: _Flight) -> None:
        flight.durable = True
        while self._flights and self._flights[0].durable:
            self._commit(self._flights.popleft())
        self._settled.set()

    def _commit(self, flight: _Flight) -> None:
        self.committed_end = flight.number + 1
        self.buffered_bytes -= flight.size
        data = memoryview(flight.data)
        self._on_commit(CommittedObject(flight.number, flight.slices, data))
        flight.commit.succeed()

    def _end(self, error: NeveError, number: int) -> None:
        """Refuse everything from `number` on; what is below may still be decided and commit."""
        first_end = self.ended is None
        self.ended = self.ended or error
        refused = [flight for flight in self._flights if flight.number >= number]
        current = asyncio.current_task() if refused else None
        for flight in refused:
            self._flights.remove(flight)
            self.buffered_bytes -= flight.size
            flight.commit.fail(error)
            if flight.upload is not None and flight.upload is not current:
                flight.upload.cancel()
        if self._open is not None:
            self.buffered_bytes -= self._open.bytes
            self._open.commit.fail(error)
            self._open = None
        self._settled.set()
        if first_end:
            self._on_end(error)

    def _broke(self, failure: BaseException) -> None:
        """A mistake of ours must not acknowledge anything: it ends the stream like a failure."""
        error = ClosedError(f"WAL stream {self.incarnation} broke: {failure!r}")
        error.__cause__ = failure
        self._end(error, self.committed_end)

    # -- leading, closing --------------------------------------------------------------------

    async def still_leading(self) -> bool:
        """Whether nobody had taken over when this was asked. One look serves all who wait."""
        if self._next_look is None:
            # A look that is already under way began before this question: it cannot answer it.
            self._next_look = self._tasks.start(self._look_after(self._look))
        return await asyncio.shield(self._next_look)

    async def _look_after(self, previous: asyncio.Task[bool] | None) -> bool:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        self._look, self._next_look = self._next_look, None
        return await self._look_now()

    async def _look_now(self) -> bool:
        while self.ended is None:
            number = self.committed_end
            idle = not self._flights
            try:
                if not await self._is_ours_or_seal(number):
                    return False
            except NotFoundError:
                if idle:
                    return True
                if await greatest_checkpoint(self._store, self.keys, above=number) is None:
                    return True
            if self.committed_end == number and self._flights:
                await self._settlement()  # ours is there and about to be known committed
        return False

    async def _is_ours_or_seal(self, number: int) -> bool:
        """True for our own data, False for a seal; NotFoundError where nothing is."""
        key = self.keys.number(number)
        data = await self._store.get_range(key, 0, HEADER_BYTES)
        header = wal_object.decode_header(data, key, incarnation=self.incarnation, number=number)
        return header.author == self._author and header.kind is Kind.DATA

    async def flush(self) -> None:
        """Wait until all that was appended so far is decided; raises where it was refused."""
        waiting = [flight.commit for flight in self._flights]
        if self._open is not None:
            self._cut_now.set()
            waiting.append(self._open.commit)
        for commit in waiting:
            await commit.wait()

    async def close(self) -> None:
        """Commit what was appended if that can be done, then stop."""
        try:
            if self.ended is None:
                await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Stop at once, as a crash would. What was undecided stays undecided for its waiters."""
        if self.ended is None:
            self._end(ClosedError(f"WAL stream {self.incarnation} was closed"), self.committed_end)
        await self._tasks.close()


def _cannot_write(key: str, error: NeveError) -> NeveError:
    ended = FencedError(f"{key} cannot be written ({error}): this incarnation has ended")
    ended.__cause__ = error
    return ended
