"""One run: producers, a leader that is killed or superseded, jobs, readers, and a faulty store."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.state import Topic
from neve.errors import NeveError
from neve.log.log_start import move_start
from neve.log.producers import OutOfOrderSequenceError
from neve.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from neve.records.reference import Record, build_batch
from neve.settings import CacheSettings, SegmentSettings, Settings, StoreSettings, WalSettings
from neve.store.faults import Faults, FaultyStore, Latencies, Latency
from neve.store.port import Store
from neve.store.url import stack
from simulation.checker import Checker, Sent, ViolationError
from simulation.jobs import manifest_of, merge, repair
from simulation.truth import UnsettledError, append_to, read_all
from support.node_world import take_over

TOPIC = "events"
# With the faults injected here most attempts succeed.
ATTEMPTS_MAX = 40
PARTITIONS = 3

SETTINGS = Settings(
    store=StoreSettings(
        request_timeout_ms=400, retry_attempts_max=2, retry_base_ms=5, retry_cap_ms=40
    ),
    # Without a linger uploads run beside each other, however little is in them.
    wal=WalSettings(linger_ms=0, inflight_max=4, tail_objects=24, buffer_bytes=256 * 1024),
    segment=SegmentSettings(bytes=3 * 1024, ms=4_000, checkpoint_numbers=4, index_interval=10),
    cache=CacheSettings(tail_bytes=8 * 1024),
)


LATENCIES = Latencies.of(write=Latency(8, 80), read=Latency(4, 40))
FAULTS = Faults(
    fails=0.02,
    hangs=0.004,
    slow_down=0.01,
    fails_after_effect=0.02,
    hangs_after_effect=0.004,
    lands_late=0.02,
    lands_after_delete=0.03,
    conflict=0.01,
    delete_lands_late=0.03,
    torn_read=0.01,
    late_ms_max=3_000,
    after_delete_ms_max=8_000,
)


@dataclass(frozen=True)
class Plan:
    """How much of everything happens. `pace` scales all pauses, for runs on the real clock."""

    faults: Faults = FAULTS
    latencies: Latencies = LATENCIES
    producers: int = 3
    idempotent_producers: int = 1
    batches: int = 250
    pace: float = 1.0
    settings: Settings = SETTINGS


@dataclass
class Report:
    """What a run amounted to."""

    operations: int
    faults: int
    acknowledged: int
    refused: int
    takeovers: int
    digest: str


@dataclass
class World:
    """One bucket and everybody who uses it."""

    raw: Store
    plan: Plan
    checker: Checker = field(default_factory=Checker)
    stores: list[FaultyStore] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    topic: Topic | None = None
    leader: Node | None = None
    takeovers: int = 0
    producing: bool = True
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256()

    def note(self, *event: object) -> None:
        self._digest.update(repr((round(runtime.monotonic(), 6), *event)).encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self.failure is not None:
            raise self.failure

    def connect(self) -> Store:
        faulty = FaultyStore(self.raw, self.plan.faults, latencies=self.plan.latencies)
        self.stores.append(faulty)
        return stack(faulty, self.plan.settings.store).store

    async def pause(self, low: float, high: float) -> None:
        await runtime.sleep(self.plan.pace * runtime.chance().uniform(low, high))

    async def start_leader(self) -> None:
        """Start a process and let it take everything over, whoever leads now."""
        node = await Node.start(
            self.connect(),
            self.plan.settings,
            node_id=runtime.chance().randint(1, 3),
            probe=False,  # this store breaks rules on purpose
        )
        self.nodes.append(node)
        if self.topic is None:
            self.topic = await node.cluster.create_topic(TOPIC, PARTITIONS)
        await take_over(node, [TOPIC])
        for incarnation, end in node.takeover.sealed.items():
            self.checker.sealed(incarnation, end)
        self.leader = node
        self.takeovers += 1
        self.note("leader", node.incarnation, sorted(node.takeover.sealed.items()))


async def run(raw: Store, plan: Plan) -> Report:
    """Play the scenario, heal the store, read everything back and check it."""
    world = World(raw, plan)
    await _until_done(world, world.start_leader)
    background = runtime.Tasks(on_failure=world.fail)
    for work in (_tender, _chaos, _reader, _repairer, _merger):
        background.start(_again(world, work))
    await runtime.gather(
        *(_producer(world, number) for number in range(plan.producers)),
        *(
            _idempotent_producer(world, number)
            for number in range(plan.producers, plan.producers + plan.idempotent_producers)
        ),
    )
    world.producing = False
    await background.close()
    world.check()
    await _finish(world)
    return _report(world)


async def _finish(world: World) -> None:
    for node in world.nodes:
        await node.abort()
    for store in world.stores:
        await store.settle()
    node = await Node.start(world.raw, world.plan.settings, node_id=9)
    try:
        await take_over(node, [TOPIC])
        for incarnation, end in node.takeover.sealed.items():
            world.checker.sealed(incarnation, end)
        starts, logs = await read_all(world.raw, TOPIC)
        world.checker.starts.update(starts)
        world.checker.check(logs)
        for partition, log in logs.items():
            assert node.leader(TOPIC, partition).log.next_offset == max(log, default=-1) + 1
    finally:
        await node.abort()
        for store in world.stores:
            await store.close()


def _report(world: World) -> Report:
    sent = world.checker.sent
    return Report(
        operations=world.checker.operations,
        faults=sum(store.injected for store in world.stores),
        acknowledged=sum(batch.base_offset is not None for batch in sent),
        refused=sum(batch.refused for batch in sent),
        takeovers=world.takeovers,
        digest=world.digest,
    )


async def _until_done(world: World, work: Callable[[], Awaitable[None]]) -> None:
    """Try until it works: the store is faulty. What never works is a violation of its own."""
    for attempt in itertools.count():
        try:
            await work()
        except NeveError as error:
            world.note("retry", type(error).__name__)
            if attempt == ATTEMPTS_MAX:
                raise ViolationError(f"{work.__name__} never succeeds: {error}") from error
            await world.pause(0.05, 0.2)
        else:
            return


async def _again(world: World, work: Callable[[World], Awaitable[None]]) -> None:
    """Repeat a piece of work for as long as the world goes on; store errors are part of life."""
    while world.producing:
        await world.pause(0.02, 0.3)
        try:
            await work(world)
        except (NeveError, UnsettledError) as error:
            world.note(work.__name__, type(error).__name__)
        world.checker.operations += 1


# -- producers -----------------------------------------------------------------------------------


async def _producer(world: World, number: int) -> None:
    for sequence in range(world.plan.batches):
        while world.leader is None or world.leader.writer.ended is not None:
            world.check()
            await world.pause(0.01, 0.05)
        partition = runtime.chance().randrange(PARTITIONS)
        batch = world.checker.send(number, sequence, partition, runtime.chance().randint(1, 3))
        try:
            async with runtime.deadline(5.0 * world.plan.pace):
                await _send(world, batch)
        except (NeveError, TimeoutError) as error:
            batch.refused = True
            world.note("refused", number, sequence, type(error).__name__)
            await world.pause(0.01, 0.1)
        if runtime.chance().random() < 0.1:
            await world.pause(0.0, 0.05)


async def _idempotent_producer(world: World, number: int) -> None:
    """Sends each batch until it is acknowledged, under the sequence that it had at first."""
    next_sequence = dict.fromkeys(range(PARTITIONS), 0)
    for sequence in range(world.plan.batches):
        partition = runtime.chance().randrange(PARTITIONS)
        batch = world.checker.send(number, sequence, partition, runtime.chance().randint(1, 3))
        while batch.base_offset is None:
            while world.leader is None or world.leader.writer.ended is not None:
                world.check()
                await world.pause(0.01, 0.05)
            try:
                # Often too early, so that it asks again while the first is on its way.
                patience = runtime.chance().choice((0.03, 0.1, 5.0)) * world.plan.pace
                async with runtime.deadline(patience):
                    await _send(world, batch, next_sequence[partition])
            except (NeveError, TimeoutError) as error:
                world.note("again", number, sequence, type(error).__name__)
                await world.pause(0.0, 0.1)
        next_sequence[partition] += batch.records


async def _send(world: World, batch: Sent, sequence: int = NO_SEQUENCE) -> None:
    node = _chosen(world)
    assert world.topic is not None
    await node.writer.room()
    idempotent = sequence != NO_SEQUENCE
    encoded = bytearray(
        build_batch(
            [Record(at, 1_000, None, batch.payload) for at in range(batch.records)],
            producer_id=batch.producer if idempotent else NO_PRODUCER_ID,
            producer_epoch=0 if idempotent else NO_PRODUCER_EPOCH,
            base_sequence=sequence,
        )
    )
    try:
        appended = append_to(node, world.topic.id_bytes, batch.partition, encoded)
    except OutOfOrderSequenceError as error:
        # One that was superseded and does not know it judges by what it knew.
        if await node.writer.still_leading():
            raise ViolationError(f"{batch.payload!r} was refused: {error}") from error
        raise
    await appended.commit.wait()
    world.checker.acknowledged(batch, appended.base_offset)
    world.checker.committed(node.incarnation, appended.commit.number)
    world.note("acked", batch.payload, appended.base_offset)


def _chosen(world: World) -> Node:
    """Mostly the newest leader; now and then one that may not know that it was superseded."""
    assert world.leader is not None
    if runtime.chance().random() < 0.05:
        return runtime.chance().choice(world.nodes)
    return world.leader


# -- what goes on beside them ----------------------------------------------------------------------


async def _chaos(world: World) -> None:
    """Kill the leader, or let another take over while it lives."""
    await world.pause(0.1, 1.0)
    if runtime.chance().random() < 0.5 and world.leader is not None:
        node, world.leader = world.leader, None
        world.note("killed", node.incarnation)
        await node.abort()
    await _until_done(world, world.start_leader)


async def _tender(world: World) -> None:
    node = world.leader if runtime.chance().random() < 0.8 else runtime.chance().choice(world.nodes)
    if node is None:
        return
    choice = runtime.chance().random()
    if choice < 0.6:
        await node.run_due_work()
    elif choice < 0.7:
        await node.rollups.roll_up()
    elif choice < 0.85:
        await node.collect()
    elif choice < 0.9:
        await _expire(node)
    else:
        await _ask_whether_leading(world, node)


async def _expire(node: Node) -> None:
    partition = runtime.chance().randrange(PARTITIONS)
    log = node.leader(TOPIC, partition).log
    if log.tiered_offset > 0:
        offset = runtime.chance().randint(0, log.tiered_offset)
        await move_start(log.manifest, offset, end=log.high_watermark)


async def _ask_whether_leading(world: World, node: Node) -> None:
    superseded = node.incarnation in world.checker.ends
    if await node.writer.still_leading():
        assert not superseded, f"{node.incarnation} says it leads after a successor served"


async def _reader(world: World) -> None:
    await world.pause(0.3, 1.0)
    store = world.connect()
    _, logs = await read_all(store, TOPIC)
    for partition, log in logs.items():
        for offset, payload in log.items():
            world.checker.saw(partition, offset, payload)
    world.note("read", [len(log) for log in logs.values()])


async def _repairer(world: World) -> None:
    await world.pause(0.1, 0.5)
    if world.topic is not None:
        await repair(world.connect(), world.topic, runtime.chance().randrange(PARTITIONS))


async def _merger(world: World) -> None:
    """A job that sleeps through much of what happens."""
    assert world.topic is not None
    partition = runtime.chance().randrange(PARTITIONS)
    store = world.connect()
    manifest = manifest_of(store, world.topic, partition)
    await manifest.refresh()
    for _ in range(runtime.chance().randint(1, 3)):
        await world.pause(0.0, 2.0)
        await merge(store, world.topic, partition, manifest)
