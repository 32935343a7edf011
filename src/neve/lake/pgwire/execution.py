"""Runs one query on an engine: calls in threads, interruption from the event loop.

An engine's calls block. Meanwhile the event loop handles cancel requests, time-outs and
disconnects. Each of them calls the engine's `cancel` repeatedly until the blocked call returns,
because a cancel can arrive before the engine has started the query.
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
from neve.lake.pgwire.client_limits import AddressLimiter
from neve.lake.pgwire.encode import ColumnEncoder, data_rows, split_batch
from neve.lake.pgwire.sqlstate import SqlError, from_exception
from neve.lake.pgwire.transport import Disconnected

T = TypeVar("T")
_CANCEL_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class ServerThreads:
    """The server's threads: for queries, and for cancels while all query threads are busy."""

    queries: runtime.ThreadPool
    control: runtime.ThreadPool
    per_address: AddressLimiter
    stuck: set[str] = field(default_factory=set)
    """Tags of cancelled queries whose engine call has not returned within `cancel_seconds`."""

    def close(self) -> None:
        self.queries.close()
        self.control.close()


@dataclass(frozen=True)
class Query:
    """A statement and the executor that runs it."""

    executor: Executor
    sql: str
    parameters: Sequence[Any]
    position: Callable[[int], int]
    """Maps a position in `sql` to one in the client's text."""


@dataclass(frozen=True)
class ResultChunk:
    """Encoded rows, and their number."""

    data: bytes
    rows: int


class Execution:
    """One query of a portal. The owner must call `close`, or the engine keeps the query.

    `plan` parses the statement and returns the query. It is called in a thread.
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
        """Cancel the query. The current call and all later calls raise `reason`."""
        if self._reason is None:
            self._reason = reason
            self._interrupted.set()

    async def schema(self) -> pa.Schema:
        """Start the query if it has not started. Returns the schema of its rows."""
        if self._rows is None:
            self._rows = await self._call(self._open)
        return self._rows.schema

    def _open(self) -> _Rows:
        query = self._query = self._plan()
        result = query.executor.execute(query.sql, query.parameters, tag=self._tag)
        self._query = replace(query, sql="", parameters=())  # an open cursor no longer needs them
        return _Rows(result.schema, result.batches, self._chunk_bytes)

    async def next(self, columns: Sequence[ColumnEncoder], rows_max: int) -> ResultChunk | None:
        """Return the next rows, at most `rows_max` (0: no limit); None at the end."""
        assert self._rows is not None
        chunk = await self._call(self._rows.next, columns, rows_max)
        self._finished = chunk is None
        return chunk

    async def close(self) -> None:
        """Release the query, and cancel it if rows are left."""
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
            raise self._sql_error(failure) from failure
        finally:
            stop.cancel()
            if not call.done():
                call.cancel()

    async def _in_turn(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` in a thread, within the limit of queries per address.

        The query counts against the limit until its thread is free, even if the caller has
        stopped waiting.
        """
        await self._threads.per_address.acquire(self._address)
        inner = runtime.spawn(self._threads.queries.offload(work, *args))
        inner.add_done_callback(self._thread_is_free)
        return await asyncio.shield(inner)

    def _thread_is_free(self, inner: asyncio.Task[Any]) -> None:
        self._threads.per_address.release(self._address)
        self._threads.stuck.discard(self._tag)
        if not inner.cancelled():
            inner.exception()  # mark it as retrieved: the caller may have stopped waiting

    def _do(self, begun: threading.Event, work: Callable[..., T], *args: Any) -> T:
        begun.set()
        if self._reason is not None:
            raise self._reason  # interrupted while it waited for a thread
        return work(*args)

    async def _cancel(self, call: asyncio.Task[Any], begun: threading.Event) -> None:
        if not begun.is_set():
            call.cancel()  # if a thread starts it nevertheless, `_do` raises the reason
        until = runtime.monotonic() + self._cancel_seconds
        while not call.done():
            if runtime.monotonic() > until:
                self._threads.stuck.add(self._tag)
                raise Disconnected  # the engine does not return, so the session cannot continue
            await self._threads.control.offload(self._cancel_on_engine)
            await asyncio.wait([call], timeout=_CANCEL_AGAIN_SECONDS)
        if not call.cancelled():
            call.exception()  # mark it as retrieved: the client gets `reason` instead

    def _sql_error(self, failure: BaseException) -> SqlError:
        error = from_exception(failure)
        if error.position and self._query is not None:
            error.position = self._query.position(error.position)
        return error


class _Rows:
    """Encodes the rows of a result in chunks. Used by one thread at a time."""

    def __init__(
        self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], chunk_bytes: int
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._chunk_bytes = chunk_bytes
        self._source: Iterator[pa.RecordBatch] | None = None
        self._slices: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None

    def next(self, columns: Sequence[ColumnEncoder], rows_max: int) -> ResultChunk | None:
        batch = self._left if self._left is not None else self._next_slice()
        self._left = None
        if batch is None:
            return None
        if rows_max and batch.num_rows > rows_max:
            self._left = batch.slice(rows_max)
            batch = batch.slice(0, rows_max)
        return ResultChunk(data_rows(batch, columns), batch.num_rows)

    def _next_slice(self) -> pa.RecordBatch | None:
        if self._source is None:
            self._source = self._batches()
        while True:
            for piece in self._slices:
                if piece.num_rows:
                    return piece
            batch = next(self._source, None)
            if batch is None:
                return None
            self._slices = split_batch(batch, self._chunk_bytes)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # an abandoned thread still runs the generator
                close()
