"""Three brokers in three racks, each with its WAL in a store of its own rack; and their clients.

Another rack's store is 10 ms further away. Nothing is tiered unless a test asks for it, so that all
records lie in the WAL stores. Clients go to the leader that metadata names, once for each question.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.log import ClusterLog
from neve.cluster.state import ClusterState, Topic
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.records.batch import walk
from neve.records.reference import decode_batch
from neve.serving.addresses import Address
from neve.settings import MIB
from neve.store.faults import Faults, Latencies, Latency
from neve.store.port import Store
from simulation.network_clients import ANSWER_SECONDS_MAX, LATEST, TOPIC, Client, RetryError
from simulation.network_cluster import Cluster, host_name, rack_name, wal_host
from simulation.network_plan import SETTINGS, Plan
from simulation.network_topics import create_first
from support.node_world import batch_of
from support.simulated_network import Network, simulate
from support.wire import Wire

T = TypeVar("T")
BROKERS = (1, 2, 3)
PARTITIONS = 6
SECONDS_BETWEEN_RACKS = 0.010
METADATA_ATTEMPTS = 20
NO_ANSWER = "no answer"
# What clients may be told about a partition that cannot be served now. They all try again.
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    NO_ANSWER,
}
UNTIERED = dataclasses.replace(
    SETTINGS,
    wal=dataclasses.replace(SETTINGS.wal, tail_objects=1_000, tail_bytes=64 * MIB),
    segment=dataclasses.replace(SETTINGS.segment, bytes=16 * MIB, ms=3_600_000),
    # Leaders stay where a test has put them.
    cluster=dataclasses.replace(SETTINGS.cluster, rebalance_delay_ms=3_600_000),
)
PLAN = Plan(
    partitions=PARTITIONS,
    wal_stores=True,
    settings=UNTIERED,
    faults=Faults(),
    latencies=Latencies.of(write=Latency(5, 6), read=Latency(3, 4)),
)


class Scene:
    """The brokers, and a client on a host of its own."""

    def __init__(self, network: Network, plan: Plan = PLAN) -> None:
        self.network = network
        self.cluster = Cluster(network, plan)
        self.client = Client(self.cluster)
        self.host = network.host("client")
        self.acknowledged: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}

    async def begin(self) -> None:
        """Start the brokers and create a topic whose leaders are spread over them."""
        self.cluster.start()
        for node_id in BROKERS:
            for rack in BROKERS:
                if rack != node_id:
                    one_way = SECONDS_BETWEEN_RACKS / 2
                    store = wal_host(rack_name(rack))
                    self.network.slow(host_name(node_id), store, (one_way, one_way))
        await self.until(lambda: len(self.cluster.running) == len(BROKERS))
        await self.host.run(create_first(self.client, PARTITIONS))
        await self.until_served(range(PARTITIONS))

    def end(self) -> None:
        self.cluster.is_over = True
        self.client.close()

    @property
    def store(self) -> Store:
        """The bucket with its WAL stores, as a reader without a broker has it."""
        return self.cluster.raw

    async def state(self) -> ClusterState:
        return await ClusterLog(self.store).refresh()

    async def topic(self) -> Topic:
        found = (await self.state()).topic(TOPIC)
        assert found is not None
        return found

    async def led_by(self, node_id: int) -> list[int]:
        """The partitions that a node leads, as the cluster log says."""
        state = await self.state()
        topic = state.topic(TOPIC)
        assert topic is not None
        return [
            number
            for number, row in enumerate(topic.partitions)
            if row.leader in state.brokers and state.brokers[row.leader].node_id == node_id
        ]

    def broker(self, node_id: int) -> Broker:
        return self.cluster.running[node_id]

    def kill(self, node_id: int) -> None:
        """Kill a broker for good."""
        self.cluster.down.add(node_id)
        self.network.host(host_name(node_id)).crash()

    # -- WAL stores ------------------------------------------------------------------------------

    def cut(self, rack: int) -> None:
        """Let nobody reach the WAL store of a rack."""
        for node_id in BROKERS:
            self.network.cut(host_name(node_id), wal_host(rack_name(rack)))

    def heal(self, rack: int) -> None:
        for node_id in BROKERS:
            self.network.heal(host_name(node_id), wal_host(rack_name(rack)))

    def destroy(self, rack: int) -> None:
        """Lose the WAL store of a rack, and everything in it, for good."""
        self.cut(rack)
        bucket = self.cluster.wal_buckets[rack_name(rack)]
        bucket.objects.clear()
        bucket.keys.clear()

    # -- clients ---------------------------------------------------------------------------------

    async def _ask(self, partition: int, work: Callable[[Wire], Awaitable[T]]) -> T | str:
        """Ask the leader that metadata names, once."""

        async def ask() -> T:
            self.client.forget(TOPIC, partition)
            leader = await self._leader_of(partition)
            async with runtime.deadline(ANSWER_SECONDS_MAX), Wire.to_address(leader) as wire:
                return await work(wire)

        try:
            return await self.host.run(ask())
        except (OSError, EOFError, TimeoutError):
            return NO_ANSWER

    async def _leader_of(self, partition: int) -> Address:
        """The leader in the metadata of a broker that is up: clients ask one after the other."""
        for _ in range(METADATA_ATTEMPTS):
            with contextlib.suppress(RetryError):
                return await self.client.leader_of(TOPIC, partition)
        raise OSError("no broker knows the leader")

    async def produce(self, partition: int, value: str) -> tuple[object, int]:
        """Produce one record. Returns the error code and the offset."""

        async def send(wire: Wire) -> tuple[object, int]:
            batch = bytes(batch_of([value]))
            row = await wire.produce(TOPIC, batch, partition=partition, timeout_ms=2_000)
            return ErrorCode(row.error_code), row.base_offset

        found = await self._ask(partition, send)
        if isinstance(found, str):
            return found, -1
        if found[0] == ErrorCode.NONE:
            self.acknowledged[partition].append(value)
        return found

    async def fetch(
        self, partition: int, offset: int, max_wait_ms: int = 100
    ) -> tuple[object, dict[int, str]]:
        """Fetch from an offset. Returns the error code and the values by offset."""

        async def read(wire: Wire) -> tuple[object, dict[int, str]]:
            wire.send_fetch(TOPIC, [(partition, offset)], max_wait_ms=max_wait_ms)
            row = (await wire.receive()).responses[0].partitions[0]
            values = {}
            for position, header in walk(memoryview(row.records or b"")):
                for at, record in enumerate(decode_batch(row.records, position)):
                    values[header.base_offset + at] = bytes(record.value or b"").decode()
            return ErrorCode(row.error_code), values

        found = await self._ask(partition, read)
        return (found, {}) if isinstance(found, str) else found

    async def latest(self, partition: int) -> tuple[object, int]:
        """Ask for the latest offset. Returns the error code and the offset."""
        request = LIST_OFFSETS.Request
        part = request.Partition(partition_index=partition, timestamp=LATEST)
        body = request(replica_id=-1, topics=[request.Topic(name=TOPIC, partitions=[part])])

        async def ask(wire: Wire) -> tuple[object, int]:
            row = (await wire.ask(LIST_OFFSETS, 5, body)).topics[0].partitions[0]
            return ErrorCode(row.error_code), row.offset

        found = await self._ask(partition, ask)
        return (found, -1) if isinstance(found, str) else found

    async def values(self, partition: int, first: int = 0) -> dict[int, str]:
        """All values of a partition from an offset on, as its leader serves them."""
        found: dict[int, str] = {}
        code, end = await self.latest(partition)
        assert code == ErrorCode.NONE, code
        offset = first
        while offset < end:
            code, values = await self.fetch(partition, offset)
            assert code == ErrorCode.NONE, code
            assert values, f"nothing at {offset} of {end}"
            found.update(values)
            offset = max(values) + 1
        return found

    async def fill(self, count: int = 3) -> None:
        """Produce some records to each partition."""
        for partition in range(PARTITIONS):
            for at in range(count):
                code, _ = await self.produce(partition, f"{partition}-{at}")
                assert code == ErrorCode.NONE, code

    # -- waiting ---------------------------------------------------------------------------------

    async def until(self, is_so: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait until something is so. Returns how long it took."""
        began = runtime.monotonic()
        while not is_so():
            self.cluster.promises.check()
            assert runtime.monotonic() - began < seconds, "it does not come to pass"
            await runtime.sleep(0.1)
        return runtime.monotonic() - began

    async def until_served(self, partitions: range | list[int], seconds: float = 90.0) -> float:
        """Wait until the leaders of these partitions answer."""
        began = runtime.monotonic()
        for partition in partitions:
            while (await self.latest(partition))[0] != ErrorCode.NONE:
                assert runtime.monotonic() - began < seconds, f"{partition} is not served"
                await runtime.sleep(0.2)
        return runtime.monotonic() - began


def play(work: Callable[[Scene], Awaitable[None]], *, seed: int = 1, plan: Plan = PLAN) -> None:
    """Run a test in a new scene, in virtual time."""

    async def scenario(network: Network) -> None:
        scene = Scene(network, plan)
        await scene.begin()
        await work(scene)
        scene.cluster.promises.check()
        scene.end()

    simulate(scenario, seed=seed)
