"""What is on its way into a WAL stream: objects being filled, objects being uploaded, and the
promise to those who appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from neve.errors import NeveError
from neve.log.wal.object import Slice, SliceMeta
from neve.store.port import Buffer


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
class OpenObject:
    """What one of the next objects will hold. `ready` says that it need not wait for more."""

    opened_at: float
    commit: Commit = field(default_factory=Commit)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    size_bytes: int = 0
    _slices: dict[tuple[bytes, int, int], _OpenSlice] = field(default_factory=dict)

    def add(self, meta: SliceMeta, batch: Buffer) -> None:
        key = (meta.topic_id, meta.partition, meta.leader_epoch)
        found = self._slices.get(key)
        if found is None:
            self._slices[key] = _OpenSlice(
                meta.base_offset, meta.last_offset, meta.max_timestamp, [batch]
            )
        else:
            found.parts.append(batch)
            found.last_offset = meta.last_offset
            found.max_timestamp = max(found.max_timestamp, meta.max_timestamp)
        self.size_bytes += len(batch)

    def rows(self) -> list[tuple[SliceMeta, list[Buffer]]]:
        """Everything in it, as the object's encoder takes it."""
        return [
            (SliceMeta(*key, row.base_offset, row.last_offset, row.max_timestamp), row.parts)
            for key, row in self._slices.items()
        ]


@dataclass
class Flight:
    """One object being uploaded. `size_bytes` is what it counts for in the buffer."""

    number: int
    commit: Commit
    size_bytes: int
    data: bytes
    slices: tuple[Slice, ...]
    durable: bool = False
    upload: asyncio.Task[None] | None = None
