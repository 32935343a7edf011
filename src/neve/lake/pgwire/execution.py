"""One statement running on an engine: opened, pulled and closed in threads, ended from the loop.

An engine's calls block. While one is under way the loop stays free to hear a cancel request, a
time-out or a client's leaving; each ends the query on the engine (`cancel`), again and again until
the call comes back, because a cancel may come before the engine has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from neve import runtime
from neve.lake.pgwire.backend import Executor
from neve.lake.pgwire.encode import ColumnEncoder, data_rows, pieces
from neve.lake.pgwire.fairness import FairQueue
from neve.lake.pgwire.sqlstate import SqlError, from_exception
from neve.lake.pgwire.transport import Disconnected

T = TypeVar("T")
_CANCEL_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class ServerThreads:
    """Threads of a server: for queries, and for what must pass while all of those are taken."""

    queries: runtime.ThreadPool
    control: runtime.ThreadPool
    turns: FairQueue
    stuck: set[str] = field(default_factory=set)
    """Tags of queries that were given up while the engine still works on them."""

    def close(self) -> None:
        self.queries.close()
        self.control.close()


@dataclass(frozen=True)
class Query:
    """What to run, and where."""

    executor: Executor
    sql: str
    parameters: Sequence[Any]
    position: Callable[[int], int]
    """From a place in `sql` to one in the client's text."""


@dataclass(frozen=True)
class ResultChunk:
    """Some rows, encoded."""

    data: bytes
    rows: int


class Execution:
    """Owned by one portal; `close` it, or the engine keeps the query.

    `plan` says what to run; it reads the statement, and is called in a thread as well.
    """

    def __init__(
        self,
        plan: Callable[[], Query],
        threads: ServerThreads,
        tag: str,
        *,
        address: str,
        cancel_seconds: float,
        chunk_bytes: int,
    ) -> None:
        self._plan = plan
        self._query: Query | None = None
        self._threads = threads
        self._tag = tag
        self._address = address
        self._cancel_seconds = cancel_seconds
        self._chunk_bytes = chunk_bytes
        self._interrupted = asyncio.Event()
        self._reason: SqlError | None = None
        self._rows: _Rows | None = None
        self._finished = False

    def interrupt(self, reason: SqlError) -> None:
        """End it: whatever is asked of it, now or later, raises this."""
        if self._reason is None:
            self._reason = reason
            self._interrupted.set()

    async def schema(self) -> pa.Schema:
        """Begin, if it has not begun; what the rows will look like."""
        if self._rows is None:
            self._rows = await self._call(self._open)
        return self._rows.schema

    def _open(self) -> _Rows:
        query = self._query = self._plan()
        result = query.executor.execute(query.sql, query.parameters, tag=self._tag)
        self._query = replace(query, sql="", parameters=())  # an open cursor does not need them
        return _Rows(result.schema, result.batches, self._chunk_bytes)

    async def next(self, columns: Sequence[ColumnEncoder], rows_max: int) -> ResultChunk | None:
        """Some more rows, at most so many (0: as many as suit); None at the end."""
        assert self._rows is not None
        chunk = await self._call(self._rows.next, columns, rows_max)
        self._finished = chunk is None
        return chunk

    async def close(self) -> None:
        """Let go of it; a query that is not at its end is cancelled."""
        rows, self._rows = self._rows, None
        if rows is None or self._finished:
            return
        self._finished = True
        await self._threads.control.offload(self._end, rows)

    def _end(self, rows: _Rows) -> None:
        self._cancel_on_engine()
        rows.close()

    def _cancel_on_engine(self) -> None:
        if self._query is not None:
            self._query.executor.cancel(self._tag)

    async def _call(self, work: Callable[..., T], *args: Any) -> T:
        if self._reason is not None:
            raise self._reason
        begun = threading.Event()
        call: asyncio.Task[T] = runtime.spawn(self._in_turn(self._do, begun, work, *args))
        stop = runtime.spawn(self._interrupted.wait())
        try:
            await asyncio.wait([call, stop], return_when=asyncio.FIRST_COMPLETED)
            if self._reason is not None:
                await self._cancel(call, begun)
                raise self._reason
            return call.result()
        except (SqlError, Disconnected):
            raise
        except Exception as failure:
            raise self._told(failure) from failure
        finally:
            stop.cancel()
            if not call.done():
                call.cancel()

    async def _in_turn(self, work: Callable[..., T], *args: Any) -> T:
        """Run in a thread. The address's turn lasts until the thread is free, also if we are not
        waited for any more.
        """
        await self._threads.turns.take(self._address)
        inner = runtime.spawn(self._threads.queries.offload(work, *args))
        inner.add_done_callback(self._thread_is_free)
        return await asyncio.shield(inner)

    def _thread_is_free(self, inner: asyncio.Task[Any]) -> None:
        self._threads.turns.give_back(self._address)
        self._threads.stuck.discard(self._tag)
        if not inner.cancelled():
            inner.exception()  # whoever still waits has it; otherwise it is not news

    def _do(self, begun: threading.Event, work: Callable[..., T], *args: Any) -> T:
        begun.set()
        if self._reason is not None:
            raise self._reason  # ended while it waited for a thread
        return work(*args)

    async def _cancel(self, call: asyncio.Task[Any], begun: threading.Event) -> None:
        if not begun.is_set():
            call.cancel()  # should a thread take it up all the same, it finds the reason to stop
        until = runtime.monotonic() + self._cancel_seconds
        while not call.done():
            if runtime.monotonic() > until:
                self._threads.stuck.add(self._tag)
                raise Disconnected  # the engine does not let go: nothing sound can be said here
            await self._threads.control.offload(self._cancel_on_engine)
            await asyncio.wait([call], timeout=_CANCEL_AGAIN_SECONDS)
        if not call.cancelled():
            call.exception()  # it ended because we asked: what it says is not news

    def _told(self, failure: BaseException) -> SqlError:
        told = from_exception(failure)
        if told.position and self._query is not None:
            told.position = self._query.position(told.position)
        return told


class _Rows:
    """The rows of a result, in encoded pieces. Used by one thread at a time."""

    def __init__(
        self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], chunk_bytes: int
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._chunk_bytes = chunk_bytes
        self._source: Iterator[pa.RecordBatch] | None = None
        self._pieces: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None

    def next(self, columns: Sequence[ColumnEncoder], rows_max: int) -> ResultChunk | None:
        batch = self._left if self._left is not None else self._piece()
        self._left = None
        if batch is None:
            return None
        if rows_max and batch.num_rows > rows_max:
            self._left = batch.slice(rows_max)
            batch = batch.slice(0, rows_max)
        return ResultChunk(data_rows(batch, columns), batch.num_rows)

    def _piece(self) -> pa.RecordBatch | None:
        if self._source is None:
            self._source = self._batches()
        while True:
            for piece in self._pieces:
                if piece.num_rows:
                    return piece
            batch = next(self._source, None)
            if batch is None:
                return None
            self._pieces = pieces(batch, self._chunk_bytes)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # given up while its thread was still inside
                close()
