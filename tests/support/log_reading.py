"""A led partition whose bytes are all known, and a reader of it, for `neve.log.reading`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from neve.cluster.node import Node
from neve.log.index_cache import IndexCache
from neve.log.log_start import move_start
from neve.log.reading.leader.reader import LogReader
from neve.log.reading.record_chunk import RecordChunk
from neve.log.remote import BucketRemoteStorage
from neve.records.reference import Record, build_batch
from neve.settings import CacheSettings, FetchSettings, Settings
from neve.store.port import Store
from support.node_world import TOPIC, small_settings, started, successor
from support.scripted_store import ScriptedStore


class Sent(NamedTuple):
    """One committed batch."""

    base: int
    last: int
    data: bytes


class World:
    def __init__(self, store: ScriptedStore, node: Node, reader: LogReader) -> None:
        self.store = store
        self.node = node
        self.reader = reader
        self.sent: list[Sent] = []
        self.log = node.leader(TOPIC, 0).log

    async def send(self, *sizes: int, timestamp: int = 1_000) -> None:
        """Commit batches of records with so many bytes each."""
        for size in sizes:
            await self.send_batch([(timestamp, b"v" * size)])

    async def send_batch(self, records: list[tuple[int, bytes]], **about: Any) -> None:
        rows = [Record(at, time, None, value) for at, (time, value) in enumerate(records)]
        batch = bytearray(build_batch(rows, **about))
        appended = self.log.append(batch)
        await appended.commit.wait()
        self.sent.append(Sent(appended.base_offset, appended.last_offset, bytes(batch)))

    def forget(self) -> None:
        """Drop from memory all that the tail cache held."""
        for row in [*self.log.tail, *self.log.recent]:
            row.cached.drop()

    async def delete_below(self, offset: int) -> None:
        await move_start(self.log.manifest, offset, end=self.log.high_watermark)

    def expected(self, offset: int) -> list[Sent]:
        """The batches from the one that holds `offset` on."""
        return [row for row in self.sent if row.last >= offset]

    def check(self, chunk: RecordChunk, offset: int, max_bytes: int) -> None:
        """The chunk is what the truth says, byte for byte."""
        assert chunk.size == sum(map(len, chunk.parts))
        rows = self.expected(offset)
        data = b"".join(chunk.parts)
        taken = []
        size = 0
        for row in rows:
            if size == len(data):
                break
            taken.append(row)
            size += len(row.data)
        assert data == b"".join(row.data for row in taken)
        if not rows:
            assert (chunk.first_offset, chunk.next_offset) == (offset, offset)
            return
        assert taken
        assert chunk.first_offset == taken[0].base
        assert chunk.next_offset == taken[-1].last + 1
        assert chunk.size <= max_bytes or len(taken) == 1

    async def read_checked(self, offset: int, max_bytes: int) -> RecordChunk:
        chunk = await self.reader.read(self.log, offset, max_bytes)
        self.check(chunk, offset, max_bytes)
        return chunk

    async def read_all(self, offset: int, max_bytes: int) -> list[RecordChunk]:
        """Read sequentially to the end, and check each chunk."""
        chunks = []
        while offset < self.log.high_watermark:
            chunks.append(await self.read_checked(offset, max_bytes))
            offset = chunks[-1].next_offset
        return chunks

    def gets(self) -> list[str]:
        return [call.key for call in self.store.calls if call.operation in ("get", "get_range")]


@asynccontextmanager
async def reading(
    *,
    store: ScriptedStore | None = None,
    reads: Store | None = None,
    ahead: Store | None = None,
    settings: Settings | None = None,
    fetch: FetchSettings | None = None,
    crashed: World | None = None,
) -> AsyncIterator[World]:
    """A node that leads one empty partition, and a reader; nothing may be left at the end.

    The reader reads the node's store, or what `reads` makes of it. With `crashed` the node leads
    what that world's node left behind, which must have been aborted.
    """
    store = store or ScriptedStore()
    settings = settings or small_settings()
    node = await (started(store, settings) if crashed is None else successor(store, settings))
    indexes = await IndexCache.open(BucketRemoteStorage(store), CacheSettings())
    chosen = fetch or small_fetch()
    reader = LogReader(reads or store, indexes, chosen, ahead=ahead)
    world = World(store, node, reader)
    if crashed is not None:
        world.sent = list(crashed.sent)
    try:
        yield world
    finally:
        await reader.aclose()
        await indexes.aclose()
        await node.close()
    assert reader.cold.budget.used == 0
    assert len(reader.cold.blocks) == 0
    assert reader.cold.cursors.readers == 0


def small_fetch(**given: int) -> FetchSettings:
    return replace(
        FetchSettings(readahead_part_bytes=1_000, catchup_bytes=16_000, catchup_concurrency=4),
        **given,
    )
