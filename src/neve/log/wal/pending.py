"""Uncommitted data of a WAL stream: open objects, objects being uploaded, and their commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from neve.errors import NeveError
from neve.log.wal.object import Slice, SliceMeta
from neve.store.port import Buffer


class Commit:
    """The outcome of an append: committed or refused. Shared by all records of one object."""

    __slots__ = ("_future", "number")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Marks a failure as retrieved: it is not an error if no caller waits for the commit.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.number = -1

    async def wait(self) -> None:
        """Return once committed. Raises FencedError, or the other error that ended the stream."""
        await asyncio.shield(self._future)

    @property
    def done(self) -> bool:
        return self._future.done()

    @property
    def succeeded(self) -> bool:
        return self._future.done() and self.failure is None

    @property
    def failure(self) -> BaseException | None:
        """The error if it was refused; None if it is committed or not decided yet."""
        decided = self._future.done() and not self._future.cancelled()
        return self._future.exception() if decided else None

    def then(self, call: Callable[[asyncio.Future[None]], None]) -> None:
        """Call `call` once decided, without a task."""
        self._future.add_done_callback(call)

    def succeed(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def fail(self, error: NeveError) -> None:
        if not self._future.done():
            self._future.set_exception(error)


@dataclass(slots=True)
class _OpenSlice:
    base_offset: int
    last_offset: int
    max_timestamp: int
    parts: list[Buffer]


@dataclass(slots=True)
class OpenObject:
    """The content of one of the next objects. `ready` is set once it need not wait for more.

    `closed` has the same meaning for appends: each batch checks it, and an attribute is faster.
    """

    opened_at: float
    commit: Commit = field(default_factory=Commit)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    size_bytes: int = 0
    _slices: dict[tuple[bytes, int, int], _OpenSlice] = field(default_factory=dict)

    def add(self, meta: SliceMeta, batch: Buffer) -> int:
        """Add a batch. Returns the total bytes of batches in the object."""
        topic_id, partition, leader_epoch, base_offset, last_offset, max_timestamp = meta
        key = (topic_id, partition, leader_epoch)
        found = self._slices.get(key)
        if found is None:
            self._slices[key] = _OpenSlice(base_offset, last_offset, max_timestamp, [batch])
        else:
            found.parts.append(batch)
            found.last_offset = last_offset
            found.max_timestamp = max(found.max_timestamp, max_timestamp)
        self.size_bytes += len(batch)
        return self.size_bytes

    def close(self) -> None:
        """Take no more batches and do not wait any longer."""
        self.closed = True
        self.ready.set()

    def rows(self) -> list[tuple[SliceMeta, list[Buffer]]]:
        """Return the slices and their batches, as the object's encoder takes them."""
        return [
            (SliceMeta(*key, row.base_offset, row.last_offset, row.max_timestamp), row.parts)
            for key, row in self._slices.items()
        ]


@dataclass(slots=True)
class Flight:
    """One object being uploaded. `size_bytes` are the bytes it counts for in the buffer."""

    number: int
    commit: Commit
    size_bytes: int
    data: memoryview
    slices: tuple[Slice, ...]
    durable: bool = False
    upload: asyncio.Task[None] | None = None
