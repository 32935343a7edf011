"""A broker in the test process, and a client that talks to it frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

from neve.broker.broker import Broker
from neve.protocol.frames import decode_response_header, request_frame
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import walk
from neve.records.compression import CODECS
from neve.serving.addresses import Address
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from neve.store.url import Stack, stack

ANSWER_SECONDS = 20
PRODUCE_VERSION, FETCH_VERSION = 9, 12


@contextlib.asynccontextmanager
async def running_broker(
    store: Store | None = None, settings: Settings | None = None, *, store_url: str = "memory://"
) -> AsyncIterator[Broker]:
    """A broker on a free port, on a bucket in memory unless another store is given."""
    where = socket.socket()
    where.bind(("127.0.0.1", 0))
    broker = await start_broker_at(
        where,
        Address(*where.getsockname()),
        store or MemoryStore(MemoryBucket()),
        settings or Settings(),
        store_url=store_url,
    )
    try:
        yield broker
    finally:
        await broker.abort()


async def start_broker_at(
    where: Any,
    advertised: Address,
    store: Store | Stack,
    settings: Settings,
    *,
    store_url: str = "memory://",
) -> Broker:
    """A broker that listens on a bound socket."""
    return await Broker.start(
        store if isinstance(store, Stack) else stack(store, settings.store),
        settings,
        where,
        store_url=store_url,
        advertised=advertised,
        puts_cost=False,
    )


class Wire:
    """One connection. Answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlations = itertools.count(1)
        self._asked: list[tuple[Any, int, int]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, broker: Broker) -> AsyncIterator[Wire]:
        async with cls.to_address(broker.advertised) as wire:
            yield wire

    @classmethod
    @contextlib.asynccontextmanager
    async def to_address(cls, address: tuple[str, int]) -> AsyncIterator[Wire]:
        reader, writer = await asyncio.open_connection(*address)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def send(self, api: Any, version: int, request: Any) -> None:
        correlation = next(self._correlations)
        parts = request_frame(api, version, correlation, "test", request.encode(version))
        self.writer.write(b"".join(parts))
        self._asked.append((api, version, correlation))

    async def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        api, version, expected = self._asked.pop(0)
        async with asyncio.timeout(ANSWER_SECONDS):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            data = memoryview(await self.reader.readexactly(size))
        correlation, end = decode_response_header(api, version, data)
        assert correlation == expected
        return api.Response.decode(data, version, end)

    async def ask(self, api: Any, version: int, request: Any) -> Any:
        self.send(api, version, request)
        return await self.receive()

    def send_batch(
        self,
        topic: str,
        batch: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 9000,
    ) -> None:
        request = PRODUCE.Request
        part = request.Partition(index=partition, records=batch)
        body = request(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[request.Topic(name=topic, partition_data=[part])],
        )
        self.send(PRODUCE, PRODUCE_VERSION, body)

    async def produced(self) -> Any:
        """The one partition of the answer to a produce request."""
        return (await self.receive()).responses[0].partition_responses[0]

    async def produce(self, topic: str, batch: bytes, **about: int) -> Any:
        self.send_batch(topic, batch, **about)
        return await self.produced()

    def send_fetch(
        self,
        topic: str,
        offsets: Sequence[tuple[int, int]],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_bytes: int = 1 << 20,
        session: tuple[int, int] = (0, -1),
        rack: str = "",
        epoch: int = -1,
    ) -> None:
        request = FETCH.Request
        parts = [
            request.Partition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes,
            )
            for index, offset in offsets
        ]
        body = request(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            rack_id=rack,
            topics=[request.Topic(topic=topic, partitions=parts)] if parts else [],
        )
        self.send(FETCH, FETCH_VERSION, body)

    async def fetch(self, topic: str, offset: int, **about: Any) -> Any:
        """The one partition of the answer to a fetch of partition 0."""
        self.send_fetch(topic, [(0, offset)], **about)
        return (await self.receive()).responses[0].partitions[0]


async def codecs_in_log(address: tuple[str, int], topic: str) -> set[str]:
    """The codecs of the batches at the start of a topic's partition 0, as a fetch brings them."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        data = (await Wire(reader, writer).fetch(topic, 0)).records
        return {CODECS[header.codec] for _, header in walk(data)}
    finally:
        writer.close()
        await writer.wait_closed()
