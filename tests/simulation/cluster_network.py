"""A whole cluster in one process: brokers and clients over the simulated network and one bucket.

Brokers are real: their sockets, their pings, their take-overs, releases and rebalancing. They are
crashed, paused, cut off from each other, from the bucket or from clients, drained, and stopped; one
that was declared dead starts again by itself, as `neve serve` does. Clients work only from what the
brokers answer, and the checker only from what clients were told. One consumer is in the rack of a
broker, and reads from the followers that leaders name to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from unittest import mock

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.log import ClusterLog
from neve.errors import NeveError, UnavailableError
from neve.log import create
from neve.log.keys import stream_of, wal_stream
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from neve.records.batch import walk
from neve.records.reference import Record, build_batch, decode_batch
from neve.serving.addresses import Address
from neve.settings import (
    BrokerSettings,
    ClusterSettings,
    MaintenanceSettings,
    SegmentSettings,
    Settings,
    StoreSettings,
    WalSettings,
)
from neve.store.faults import Faults, FaultyStore, Latencies, Latency
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper
from simulation.checker import Checker, Sent, ViolationError
from simulation.truth import read_all
from support.simulated_network import KilledError, Network, RemoteStore, simulate
from support.wire import Wire, start_broker_at

T = TypeVar("T")
PORT = 9092
TOPIC = "t"
CLIENT_SECONDS_MAX = 6.0
ORDER_SECONDS_MAX = 300.0
UNDECIDED_SECONDS_MAX = 1.0
LATEST = -1
READ_FROM_FOLLOWER = "read from a follower"
# What a client may be told while leaders move; it asks for metadata and tries again.
MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
SETTINGS = Settings(
    store=StoreSettings(
        request_timeout_ms=400,
        retry_attempts_max=2,
        retry_base_ms=5,
        retry_cap_ms=40,
        denied_grace_ms=500,
    ),
    wal=WalSettings(linger_ms=0, inflight_max=4, tail_objects=24, tail_bytes=12 * 1024),
    segment=SegmentSettings(bytes=3 * 1024, ms=4_000, checkpoint_numbers=4, index_interval=10),
    cluster=ClusterSettings(
        poll_ms=2_000,
        session_ms=3_000,
        heartbeat_ms=500,
        rebalance_delay_ms=3_000,
        follow_ms=1_000,
        follow_lag_ms=6_000,
        purge_delay_ms=4_000,
    ),
    maintenance=MaintenanceSettings(interval_ms=500, gc_interval_ms=1_500),
)
LATENCIES = Latencies.of(write=Latency(8, 60), read=Latency(4, 30))
FAULTS = Faults(
    fails=0.01,
    slow_down=0.005,
    fails_after_effect=0.005,
    lands_late=0.005,
    conflict=0.003,
    conflict_after_effect=0.005,
    answers_late=0.005,
    late_ms_max=2_000,
)


@dataclass(frozen=True)
class Plan:
    """How much of everything happens."""

    brokers: int = 3
    partitions: int = 6
    producers: int = 2
    near: int = 1  # consumers in the rack of a broker
    batches: int = 60
    calm_seconds: float = 6.0  # between two events at most
    chaos: Sequence[str] = (
        "crash",
        "crash behind a gap",
        "pause",
        "cut",
        "isolate",
        "shun",
        "drain",
        "hinder release",
        "stop",
        "store",
        "slow",
    )
    faults: Faults = FAULTS
    latencies: Latencies = LATENCIES
    settings: Settings = SETTINGS


class LostNumber(Wrapper):
    """A broker's store. Once `armed`, the next number of the WAL never lands; later ones do."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.armed = False
        self._key = ""

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        stream = stream_of(call.key) if call.operation == "create" else None
        if stream is not None and wal_stream(stream).number_of(call.key) is not None:
            if self.armed:
                self.armed, self._key = False, call.key
            if call.key == self._key:
                await runtime.sleep(ORDER_SECONDS_MAX)
                raise UnavailableError(call.key, "it was lost on its way")
        return await work()


@dataclass
class Report:
    """What a run amounted to."""

    acknowledged: int = 0
    refused: int = 0
    starts: int = 0
    faults: int = 0
    epochs: int = 0
    events: dict[str, int] = field(default_factory=dict)


class Cluster:
    """The brokers, their bucket, and what clients were told."""

    def __init__(self, network: Network, plan: Plan) -> None:
        self.network = network
        self.plan = plan
        self.bucket = MemoryBucket()
        self.raw = MemoryStore(self.bucket)
        self.stores: list[FaultyStore] = []
        self.checker = Checker()
        self.report = Report()
        self.running: dict[int, Broker] = {}
        self.losing: dict[int, LostNumber] = {}  # by node
        self.down: set[int] = set()  # nodes that chaos keeps stopped
        self.acknowledged: dict[int, int] = {}  # by partition: the greatest next offset
        self.is_over = False
        self.failure: BaseException | None = None

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def note(self, event: str) -> None:
        self.report.events[event] = self.report.events.get(event, 0) + 1

    # -- brokers ---------------------------------------------------------------------------------

    def connect(self, node_id: int) -> Store:
        """The bucket as one process reaches it: through the network, and not always well."""
        faulty = FaultyStore(
            MemoryStore(self.bucket), self.plan.faults, latencies=self.plan.latencies
        )
        self.stores.append(faulty)
        self.losing[node_id] = LostNumber(RemoteStore(faulty, self.network))
        return self.losing[node_id]

    async def serve(self, node_id: int) -> None:
        """Run a broker on its host, and start it again whenever it was declared dead or crashed."""
        host = self.network.host(f"b{node_id}")
        while not self.is_over:
            if node_id in self.down:
                await runtime.sleep(0.2)
                continue
            with contextlib.suppress(KilledError, NeveError, OSError):
                await host.run(self._live(node_id))
            self.running.pop(node_id, None)
            await runtime.sleep(runtime.chance().uniform(0.1, 1.0))

    async def _live(self, node_id: int) -> None:
        host = self.network.host(f"b{node_id}")
        given = dataclasses.replace(BrokerSettings(), node_id=node_id, rack=f"r{node_id}")
        settings = dataclasses.replace(self.plan.settings, broker=given)
        address = Address(host.name, PORT)
        broker = await start_broker_at(host.socket(PORT), address, self.connect(node_id), settings)
        self.running[node_id] = broker
        self.report.starts += 1
        stopped = runtime.spawn(self._until_down(node_id))
        await asyncio.wait([broker.ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        if broker.ended.done():
            stopped.cancel()
            await broker.abort()
        else:
            await broker.stop()

    async def _until_down(self, node_id: int) -> None:
        while node_id not in self.down:
            await runtime.sleep(0.1)


# -- clients ---------------------------------------------------------------------------------------


class Client:
    """A client on a host of its own, which knows the brokers' addresses and asks for the rest."""

    def __init__(self, cluster: Cluster, rack: str = "") -> None:
        self._cluster = cluster
        self._leaders: dict[int, Address] = {}
        self._preferred: dict[int, Address] = {}
        self.rack = rack

    async def on(self, address: Address, work: Callable[[Wire], Awaitable[None]]) -> None:
        async with runtime.deadline(CLIENT_SECONDS_MAX), Wire.to_address(address) as wire:
            await work(wire)

    async def leader_of(self, partition: int) -> Address:
        """The leader as the metadata of some broker has it. Raises OSError if there is none."""
        if partition not in self._leaders:
            nodes = range(1, self._cluster.plan.brokers + 1)
            chosen = Address(f"b{runtime.chance().choice(list(nodes))}", PORT)
            await self.on(chosen, self._learn)
        if partition not in self._leaders:
            raise OSError(f"partition {partition} has no leader")
        return self._leaders[partition]

    async def _learn(self, wire: Wire) -> None:
        topics = [METADATA.Request.Topic(name=TOPIC)]
        found = await wire.ask(METADATA, 9, METADATA.Request(topics=topics))
        addresses = {row.node_id: Address(row.host, row.port) for row in found.brokers}
        for row in found.topics[0].partitions:
            if row.leader_id in addresses:
                self._leaders[row.partition_index] = addresses[row.leader_id]

    async def source_of(self, partition: int) -> Address:
        """The follower that the leader has named, or else the leader."""
        return self._preferred.get(partition) or await self.leader_of(partition)

    def prefer(self, partition: int, node_id: int) -> None:
        self._preferred[partition] = Address(f"b{node_id}", PORT)

    def is_preferred(self, partition: int) -> bool:
        return partition in self._preferred

    def forget(self, partition: int) -> None:
        self._leaders.pop(partition, None)
        self._preferred.pop(partition, None)


async def _again(cluster: Cluster, work: Callable[[], Awaitable[None]]) -> None:
    while not cluster.is_over:
        await _pause(0.02, 0.3)
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            await work()


async def _pause(low: float, high: float) -> None:
    await runtime.sleep(runtime.chance().uniform(low, high))


async def _create(cluster: Cluster, client: Client) -> None:
    request = CREATE_TOPICS.Request
    topic = request.Topic(name=TOPIC, num_partitions=cluster.plan.partitions, replication_factor=1)

    async def create(wire: Wire) -> None:
        row = (await wire.ask(CREATE_TOPICS, 5, request(topics=[topic]))).topics[0]
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise OSError(f"not created: {row.error_code}")

    while True:
        try:
            await client.on(Address("b1", PORT), create)
        except (OSError, EOFError, TimeoutError):
            await runtime.sleep(0.3)
        else:
            return


async def _produce(cluster: Cluster, client: Client, number: int) -> None:
    for sequence in range(cluster.plan.batches):
        cluster.check()
        partition = runtime.chance().randrange(cluster.plan.partitions)
        batch = cluster.checker.send(number, sequence, partition, runtime.chance().randint(1, 3))
        try:
            await client.on(await client.leader_of(partition), partial(_send, cluster, batch))
        except (OSError, EOFError, TimeoutError):
            batch.refused = True  # or stored all the same: it is never sent again
            client.forget(partition)
            await _pause(0.1, 0.5)
        await _pause(0.0, 0.3)


async def _send(cluster: Cluster, batch: Sent, wire: Wire) -> None:
    """Send a batch. Raises OSError if it is to be sent to another broker."""
    partition = batch.partition
    assert isinstance(partition, int)
    records = [Record(at, runtime.now_ms(), None, batch.payload) for at in range(batch.records)]
    answer = await wire.produce(TOPIC, bytes(build_batch(records)), partition=partition)
    if answer.error_code in MOVED:
        raise OSError(f"not stored: {answer.error_code}")
    if answer.error_code != ErrorCode.NONE:
        cluster.fail(ViolationError(f"produce: {ErrorCode(answer.error_code).name}"))
        return
    cluster.checker.acknowledged(batch, answer.base_offset)
    known = cluster.acknowledged.get(partition, 0)
    cluster.acknowledged[partition] = max(known, answer.base_offset + batch.records)


async def _consume(cluster: Cluster, client: Client, positions: dict[int, int]) -> None:
    """Read on, where some leader or follower is said to be. What was read once never changes."""
    partition = runtime.chance().randrange(cluster.plan.partitions)

    async def read(wire: Wire) -> None:
        at = positions.get(partition, 0)
        wire.send_fetch(TOPIC, [(partition, at)], max_wait_ms=200, rack=client.rack)
        answer = (await wire.receive()).responses[0].partitions[0]
        if answer.error_code in MOVED:
            client.forget(partition)
            return
        if answer.error_code != ErrorCode.NONE:
            name = ErrorCode(answer.error_code).name
            raise ViolationError(f"fetch of {partition} from {positions.get(partition)}: {name}")
        if answer.preferred_read_replica >= 0:
            client.prefer(partition, answer.preferred_read_replica)
            return
        if answer.records and client.is_preferred(partition):
            cluster.note(READ_FROM_FOLLOWER)
        for position, header in walk(memoryview(answer.records or b"")):
            for at, record in enumerate(decode_batch(answer.records, position)):
                offset = header.base_offset + at
                cluster.checker.saw(partition, offset, bytes(record.value or b""))
                positions[partition] = max(positions.get(partition, 0), offset + 1)

    try:
        await client.on(await client.source_of(partition), read)
    except ViolationError as violation:
        cluster.fail(violation)
    except (OSError, EOFError, TimeoutError):
        client.forget(partition)


async def _ask_for_the_end(cluster: Cluster, client: Client) -> None:
    """An end below what was acknowledged before the question is a lie."""
    partition = runtime.chance().randrange(cluster.plan.partitions)
    node = runtime.chance().randint(1, cluster.plan.brokers)
    acknowledged = cluster.acknowledged.get(partition, 0)
    request = LIST_OFFSETS.Request
    part = request.Partition(partition_index=partition, timestamp=LATEST)
    body = request(replica_id=-1, topics=[request.Topic(name=TOPIC, partitions=[part])])

    async def ask(wire: Wire) -> None:
        row = (await wire.ask(LIST_OFFSETS, 5, body)).topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE and row.offset < acknowledged:
            cluster.fail(ViolationError(f"end {row.offset} after {acknowledged} was acknowledged"))
        cluster.note("asked for the end")

    await client.on(Address(f"b{node}", PORT), ask)


# -- chaos -----------------------------------------------------------------------------------------


async def _chaos(cluster: Cluster) -> None:
    while not cluster.is_over:
        await _pause(0.5, cluster.plan.calm_seconds)
        event = runtime.chance().choice(cluster.plan.chaos)
        cluster.note(event)
        await _EVENTS[event](cluster)


def _some(cluster: Cluster, count: int = 1) -> list[int]:
    return runtime.chance().sample(range(1, cluster.plan.brokers + 1), count)


async def _crash(cluster: Cluster) -> None:
    cluster.network.host(f"b{_some(cluster)[0]}").crash()


async def _crash_behind_a_gap(cluster: Cluster) -> None:
    """Crash a broker while one of its numbers is missing, and later ones are in the bucket."""
    node_id = _some(cluster)[0]
    if node_id in cluster.losing:
        cluster.losing[node_id].armed = True
        await _pause(0.3, 1.5)
        cluster.network.host(f"b{node_id}").crash()


async def _pause_one(cluster: Cluster) -> None:
    host = cluster.network.host(f"b{_some(cluster)[0]}")
    host.pause()
    await _pause(0.2, 10.0)
    host.resume()


async def _cut(cluster: Cluster) -> None:
    one, two = _some(cluster, 2)
    cluster.network.cut(f"b{one}", f"b{two}", one_way=runtime.chance().random() < 0.5)
    await _pause(0.5, 8.0)
    cluster.network.heal(f"b{one}", f"b{two}")


async def _isolate(cluster: Cluster) -> None:
    name = f"b{_some(cluster)[0]}"
    outgoing, incoming = runtime.chance().choice([(True, True), (True, False), (False, True)])
    cluster.network.isolate(name, incoming=incoming, outgoing=outgoing)
    await _pause(0.5, 8.0)
    cluster.network.heal(name)


async def _shun(cluster: Cluster) -> None:
    """Cut a broker off from all others and from the bucket: clients still reach it."""
    chosen = _some(cluster)[0]
    others = [f"b{at}" for at in range(1, cluster.plan.brokers + 1) if at != chosen]
    for name in (*others, "store"):
        cluster.network.cut(f"b{chosen}", name)
    await _pause(2.0, 15.0)
    # The bucket first: it can write again before it learns what has happened meanwhile.
    for name in ("store", *others):
        cluster.network.heal(f"b{chosen}", name)


async def _cut_store(cluster: Cluster) -> None:
    names = [f"b{at}" for at in _some(cluster, runtime.chance().randint(1, cluster.plan.brokers))]
    for name in names:
        cluster.network.cut(name, "store")
    await _pause(0.5, 8.0)
    for name in names:
        cluster.network.heal(name, "store")


async def _slow_down(cluster: Cluster) -> None:
    one, two = _some(cluster, 2)
    cluster.network.slow(f"b{one}", f"b{two}", (0.1, 1.0))
    await _pause(0.5, 6.0)
    cluster.network.heal(f"b{one}", f"b{two}")


async def _drain(cluster: Cluster) -> None:
    node_id = _some(cluster)[0]
    log = ClusterLog(cluster.raw)
    with contextlib.suppress(NeveError):
        await log.set_draining(node_id, draining=True)
        await _pause(0.5, 8.0)
        await log.set_draining(node_id, draining=False)


async def _hinder_release(cluster: Cluster) -> None:
    """Drain a broker, and cut it off from the bucket while it releases its partitions."""
    node_id = _some(cluster)[0]
    log = ClusterLog(cluster.raw)
    with contextlib.suppress(NeveError):
        await log.set_draining(node_id, draining=True)
        await _pause(0.1, 2.0)
        cluster.network.cut(f"b{node_id}", "store")
        await _pause(1.0, 5.0)
        cluster.network.heal(f"b{node_id}", "store")
        await _pause(0.5, 3.0)
        await log.set_draining(node_id, draining=False)


async def _stop(cluster: Cluster) -> None:
    node_id = _some(cluster)[0]
    cluster.down.add(node_id)
    await _pause(0.5, 10.0)
    cluster.down.discard(node_id)


_EVENTS: dict[str, Callable[[Cluster], Awaitable[None]]] = {
    "crash": _crash,
    "crash behind a gap": _crash_behind_a_gap,
    "pause": _pause_one,
    "cut": _cut,
    "isolate": _isolate,
    "shun": _shun,
    "store": _cut_store,
    "slow": _slow_down,
    "drain": _drain,
    "hinder release": _hinder_release,
    "stop": _stop,
}


# -- a run -----------------------------------------------------------------------------------------


async def _run(cluster: Cluster) -> tuple[Report, str]:
    network, plan = cluster.network, cluster.plan
    tasks = runtime.Tasks(on_failure=cluster.fail)
    for node_id in range(1, plan.brokers + 1):
        tasks.start(cluster.serve(node_id))
    hosts = [network.host(f"c{at}") for at in range(plan.producers)]
    await hosts[0].run(_create(cluster, Client(cluster)))
    reader, asker = network.host("reader"), network.host("asker")
    consumer, client = Client(cluster), Client(cluster)
    positions: dict[int, int] = {}
    tasks.start(reader.run(_again(cluster, lambda: _consume(cluster, consumer, positions))))
    read = [positions]
    for at in range(plan.near):
        near = Client(cluster, f"r{runtime.chance().randint(1, plan.brokers)}")
        read.append({})
        work = partial(_consume, cluster, near, read[-1])
        tasks.start(network.host(f"near{at}").run(_again(cluster, work)))
    tasks.start(asker.run(_again(cluster, lambda: _ask_for_the_end(cluster, client))))
    chaos = tasks.start(_chaos(cluster))
    await runtime.gather(
        *(host.run(_produce(cluster, Client(cluster), at)) for at, host in enumerate(hosts))
    )
    chaos.cancel()
    await _bring_in_order(cluster)
    for each in read:
        await _read_to_the_end(cluster, each)
    cluster.check()
    await _check_logs(cluster)
    cluster.is_over = True
    report = cluster.report
    report.acknowledged = sum(row.base_offset is not None for row in cluster.checker.sent)
    report.refused = sum(row.refused for row in cluster.checker.sent)
    report.faults = sum(store.injected for store in cluster.stores)
    report.faults += sum(report.events.values())
    return report, network.digest


async def _bring_in_order(cluster: Cluster) -> None:
    """Let everything work again, and wait until every partition is served by a live broker."""
    for store in cluster.stores:
        store.faults = Faults()
    cluster.down.clear()
    for node_id in range(1, cluster.plan.brokers + 1):
        cluster.network.host(f"b{node_id}").resume()
    cluster.network.heal()
    log = ClusterLog(cluster.raw)
    for node_id in (await log.refresh()).draining:
        await log.set_draining(node_id, draining=False)
    ends_at = runtime.monotonic() + ORDER_SECONDS_MAX
    while disorder := await _disorder(cluster):
        cluster.check()
        if runtime.monotonic() > ends_at:
            raise ViolationError(f"after {ORDER_SECONDS_MAX:.0f} s: {'; '.join(disorder)}")
        await runtime.sleep(1)


async def _read_to_the_end(cluster: Cluster, positions: dict[int, int]) -> None:
    """Wait until a consumer has read all that was acknowledged."""
    ends_at = runtime.monotonic() + ORDER_SECONDS_MAX
    while left := {
        partition: (positions.get(partition, 0), end)
        for partition, end in cluster.acknowledged.items()
        if positions.get(partition, 0) < end
    }:
        cluster.check()
        if runtime.monotonic() > ends_at:
            raise ViolationError(f"a consumer has not read to the end: {left}")
        await runtime.sleep(1)


async def _disorder(cluster: Cluster) -> list[str]:
    state = await ClusterLog(cluster.raw).refresh()
    live = {row.incarnation: row.node_id for row in state.brokers.values() if row.live}
    found = []
    if sorted(live.values()) != list(range(1, cluster.plan.brokers + 1)):
        found.append(f"live nodes: {sorted(live.values())}")
    topic = state.topic(TOPIC)
    assert topic is not None
    counts = dict.fromkeys(live, 0)
    for number, partition in enumerate(topic.partitions):
        broker = cluster.running.get(live.get(partition.leader, -1))
        if broker is None or broker.node.incarnation != partition.leader:
            found.append(f"partition {number} is led by {partition.leader}")
            continue
        counts[partition.leader] += 1
        if broker.node.leader_of(topic.id_bytes, number) is None:
            found.append(f"partition {number} is not served by {partition.leader}")
    if counts and max(counts.values()) - min(counts.values()) > 1:
        found.append(f"leaders are not balanced: {counts}")
    cluster.report.epochs = sum(row.epoch for row in topic.partitions)
    return found


async def _check_logs(cluster: Cluster) -> None:
    starts, logs = await read_all(cluster.raw, TOPIC)
    checker = cluster.checker
    checker.starts.update(starts)
    checker.check(dict(logs))
    state = await ClusterLog(cluster.raw).refresh()
    topic = state.topic(TOPIC)
    assert topic is not None
    for number, partition in enumerate(topic.partitions):
        owner = cluster.running[state.brokers[partition.leader].node_id]
        served = owner.node.leader(TOPIC, number).log.next_offset
        if served != max(logs[number], default=-1) + 1:
            raise ViolationError(f"partition {number} is served up to {served} only")


class _Damage(logging.Handler):
    """Fails a run in which a broker calls an object damaged: nothing damages any."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "cannot be read" in message:
            self._cluster.fail(ViolationError(message))


@contextlib.contextmanager
def _without_damage(cluster: Cluster) -> Iterator[None]:
    handler, logger = _Damage(cluster), logging.getLogger("neve.broker")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def play(seed: int, plan: Plan | None = None) -> tuple[Report, str]:
    """Run one seed. Returns its report and the digest of its packets."""

    async def scenario(network: Network) -> tuple[Report, str]:
        cluster = Cluster(network, plan or Plan())
        with _without_damage(cluster):
            return await _run(cluster)

    # As short as everything else here, so that proposals stay undecided in a run.
    with mock.patch.object(create, "UNDECIDED_SECONDS_MAX", UNDECIDED_SECONDS_MAX):
        return simulate(scenario, seed=seed)
