"""Whole brokers and their clients on the simulated network."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.records.batch import walk
from neve.records.reference import decode_batch
from neve.serving.addresses import Address
from neve.serving.http import HttpServer, Page
from neve.settings import BrokerSettings, HttpSettings, Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import batch_of
from support.simulated_network import Host, KilledError, Network, RemoteStore, simulate
from support.wire import Wire, start_broker_at

ADDRESS = Address("broker", 9092)
TOPIC = "t"
BATCHES = 100


class Story:
    """A broker, a producer and a consumer group, each on a host; and what happens to them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.bucket = MemoryBucket()
        self.acknowledged: list[str] = []
        self.trace: list[tuple[float, str]] = []
        self.brokers = 0

    def note(self, what: str) -> None:
        self.trace.append((runtime.monotonic(), what))

    # -- the broker ------------------------------------------------------------------------------

    async def start_broker(self) -> None:
        """Start the next process on the broker's host."""
        self.brokers += 1
        host = self.network.host(ADDRESS.host)
        settings = Settings(broker=dataclasses.replace(BrokerSettings(), node_id=1))
        store = RemoteStore(MemoryStore(self.bucket), self.network)
        starting = start_broker_at(host.socket(ADDRESS.port), ADDRESS, store, settings)
        await host.run(starting)
        self.note("broker started")

    # -- its clients -----------------------------------------------------------------------------

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        async with Wire.to_address(ADDRESS) as wire:
            yield wire

    async def create_topic(self) -> None:
        topic = CREATE_TOPICS.Request.Topic(name=TOPIC, num_partitions=1, replication_factor=1)
        async with self.wire() as wire:
            answer = await wire.ask(CREATE_TOPICS, 5, CREATE_TOPICS.Request(topics=[topic]))
            assert answer.topics[0].error_code == ErrorCode.NONE

    async def produce(self) -> None:
        """Produce in order. Each batch is sent again, over a new connection, until it is stored."""
        values = [f"value-{at}" for at in range(BATCHES)]
        while values:
            try:
                async with self.wire() as wire:
                    while values:
                        answer = await wire.produce(TOPIC, bytes(batch_of([values[0]])))
                        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                            await runtime.sleep(0.1)  # the broker has just started
                            continue
                        assert answer.error_code == ErrorCode.NONE
                        self.acknowledged.append(values.pop(0))
                        self.note(f"stored at {answer.base_offset}")
                        await runtime.sleep(0.25)
            except (OSError, EOFError) as error:
                self.note(f"producer: {type(error).__name__}")
                await runtime.sleep(0.1)

    async def join(self, name: str) -> None:
        """Join a group and stay in it until everything is produced."""
        while len(self.acknowledged) < BATCHES:
            try:
                async with self.wire() as wire:
                    await self._stay(wire, name)
            except (OSError, EOFError) as error:
                self.note(f"{name}: {type(error).__name__}")
                await runtime.sleep(0.1)

    async def _stay(self, wire: Wire, name: str) -> None:
        request = JOIN_GROUP.Request
        joined = await wire.ask(
            JOIN_GROUP,
            2,
            request(
                group_id="g",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                protocol_type="consumer",
                protocols=[request.Protocol(name="range", metadata=b"")],
            ),
        )
        if joined.error_code:
            await wire.ask(FIND_COORDINATOR, 0, FIND_COORDINATOR.Request(key="g"))
            return
        me: dict[str, Any] = {
            "group_id": "g",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        mine = [
            SYNC_GROUP.Request.Assignment(member_id=each.member_id, assignment=b"all")
            for each in joined.members[:1]
        ]
        synced = await wire.ask(SYNC_GROUP, 0, SYNC_GROUP.Request(**me, assignments=mine))
        self.note(f"{name} joined {joined.generation_id}: {bytes(synced.assignment)!r}")
        while len(self.acknowledged) < BATCHES:
            await runtime.sleep(1)
            beat = await wire.ask(HEARTBEAT, 0, HEARTBEAT.Request(**me))
            if beat.error_code:
                self.note(f"{name}: {ErrorCode(beat.error_code).name}")
                return

    async def fetch_all(self) -> list[str]:
        values: list[str] = []
        async with self.wire() as wire:
            offset = 0
            while True:
                answer = await wire.fetch(TOPIC, offset, max_bytes=1_000)
                if not answer.records:
                    return values
                for position, header in walk(answer.records):
                    records = decode_batch(answer.records, position)
                    values += [bytes(record.value or b"").decode() for record in records]
                    offset = header.base_offset + header.last_offset_delta + 1

    # -- the faults ------------------------------------------------------------------------------

    async def disturb(self) -> None:
        broker, network = self.network.host(ADDRESS.host), self.network
        await runtime.sleep(3)
        network.cut("producer", "broker", one_way=True)
        await runtime.sleep(1)
        network.heal()
        network.cut("broker", "member-1")  # past its session
        await runtime.sleep(9)
        network.heal()
        await runtime.sleep(3)
        await self._pause(broker, 8)
        await runtime.sleep(2)
        network.cut("broker", "store")
        await runtime.sleep(1.5)
        network.heal()
        await runtime.sleep(2)
        network.cut("broker", "producer", one_way=True)
        await runtime.sleep(0.5)  # a batch is stored, and its answer is lost
        network.heal()
        self.note("crashed")
        broker.crash()
        await runtime.sleep(1)
        await self.start_broker()

    async def _pause(self, broker: Host, seconds: float) -> None:
        self.note("paused")
        broker.pause()
        await runtime.sleep(seconds)
        broker.resume()
        self.note("resumed")

    async def tell(self) -> None:
        network = self.network
        await self.start_broker()
        producer = network.host("producer")
        await producer.run(self.create_topic())
        members = ("member-1", "member-2")
        await runtime.gather(
            producer.run(self.produce()),
            *(network.host(name).run(self.join(name)) for name in members),
            self.disturb(),
        )
        self.note("fetched " + " ".join(await producer.run(self.fetch_all())))


def play(seed: int) -> tuple[Story, str]:
    async def scenario(network: Network) -> tuple[Story, str]:
        story = Story(network)
        await story.tell()
        return story, network.digest

    return simulate(scenario, seed=seed)


def test_a_broker_keeps_what_it_acknowledged_through_every_fault() -> None:
    story, _ = play(1)
    lines = [what for _, what in story.trace]
    fetched = lines[-1].removeprefix("fetched ").split()
    assert story.acknowledged == [f"value-{at}" for at in range(BATCHES)]
    assert list(dict.fromkeys(fetched)) == story.acknowledged
    assert len(fetched) > BATCHES  # a batch whose acknowledgement was lost is stored twice
    assert story.brokers == 2
    assert "member-1: UNKNOWN_MEMBER_ID" in lines
    assert any(what.startswith("member-2 joined") for what in lines)
    assert any(what.startswith("producer: ") for what in lines)


def test_a_story_replays_exactly() -> None:
    first, digest = play(2)
    again, same_digest = play(2)
    assert first.trace == again.trace
    assert digest == same_digest
    assert play(3)[1] != digest


def test_what_a_killed_broker_has_sent_to_the_store_lands() -> None:
    async def scenario(network: Network) -> None:
        story = Story(network)
        await story.start_broker()
        client = network.host("client")
        await client.run(story.create_topic())
        before = len(story.bucket.objects)
        network.link("broker", "store").latency_seconds = (1.0, 1.0)

        async def produce() -> None:
            async with story.wire() as wire:
                await wire.produce(TOPIC, bytes(batch_of(["late"])))

        producing = runtime.spawn(client.run(produce()))
        await runtime.sleep(0.5)
        network.host("broker").kill()
        with pytest.raises((OSError, EOFError)):
            await producing
        assert len(story.bucket.objects) == before
        await runtime.sleep(1)
        assert len(story.bucket.objects) == before + 1

    simulate(scenario, seed=1)


def test_the_http_port_answers() -> None:
    async def page() -> Page:
        return Page(b"fine")

    async def get() -> str:
        reader, writer = await asyncio.open_connection("broker", 9100)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.decode()

    async def scenario(network: Network) -> None:
        settings = HttpSettings(listen="0.0.0.0:9100")
        serving = HttpServer.start(settings, {"/health": page})
        server = await network.host("broker").run(serving)
        assert (await network.host("client").run(get())).endswith("fine")
        await server.close()

    simulate(scenario, seed=1)


def test_a_start_that_is_killed_ends_with_an_error() -> None:
    async def scenario(network: Network) -> None:
        story = Story(network)
        network.cut("broker", "store")
        starting = runtime.spawn(story.start_broker())
        await runtime.sleep(1)
        network.host("broker").kill()
        with pytest.raises(KilledError):
            await starting

    simulate(scenario, seed=1)
