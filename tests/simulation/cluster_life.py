"""The life of a cluster: whole brokers but for their sockets, and all that clients ask of them.

Beside producers there are a group that commits offsets, an administrator who creates, grows and
deletes topics, an import, consumers that ask for offsets by time, and readers of the bucket.
Brokers are killed, superseded, paused, denied, and run out of room; one topic cannot be read for a
while. Their background loops run all the time.

Then the store is well again, and the last broker has to bring everything in order by itself: every
partition is led, nothing is left of what was deleted, nor of processes that are over.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from neve import runtime
from neve.broker.handlers import list_offsets
from neve.bucket.maintain.import_kafscale import import_kafscale
from neve.cluster.log import ClusterLog
from neve.cluster.state import ClusterState, Topic
from neve.coordinator.offset_requests import CommitRequest, OffsetToCommit
from neve.errors import NeveError
from neve.log.keys import TOPICS_PREFIX, WAL_PREFIX, stream_of, topic_prefix
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.records.reference import Record, build_batch
from neve.settings import (
    CacheSettings,
    ClusterSettings,
    GroupSettings,
    MaintenanceSettings,
    SegmentSettings,
    Settings,
    StoreSettings,
    WalSettings,
)
from neve.store.faults import Fault, Faults, FaultyStore, Latencies, Latency, Rule
from neve.store.memory import MemoryStore
from neve.store.port import Store
from neve.store.url import stack
from simulation.checker import Checker, Sent, ViolationError
from simulation.process import ALWAYS, Process
from simulation.truth import UnsettledError, append_to, read_all
from support import foreign_bucket

STEADY, SICK, IMPORTED = "steady", "sick", "orders"
STEADY_PARTITIONS, SICK_PARTITIONS = 12, 2
IMPORTED_RECORDS = 30
KEPT = {"retention.ms": "-1"}  # no clock may take what was acknowledged
GROUP = "group"
# How long a client waits for a topic that it creates. With the faults below it takes less than 1 s.
CREATE_SECONDS_MAX = 5.0
ORDER_SECONDS = 900.0
START_ATTEMPTS_MAX = 60
# Rarely: a write, and a look at its stream, show a broker at once that it was superseded.
WRITES_SUPERSEDED = 0.03

SETTINGS = Settings(
    store=StoreSettings(
        request_timeout_ms=400,
        retry_attempts_max=2,
        retry_base_ms=5,
        retry_cap_ms=40,
        denied_grace_ms=500,
    ),
    wal=WalSettings(
        linger_ms=0,
        inflight_max=4,
        tail_objects=24,
        tail_bytes=12 * 1024,
        buffer_bytes=256 * 1024,
    ),
    segment=SegmentSettings(bytes=3 * 1024, ms=4_000, checkpoint_numbers=4, index_interval=10),
    cache=CacheSettings(tail_bytes=8 * 1024),
    groups=GroupSettings(partitions=2),
    # Longer than a put may take to land (FAULTS): what lands after this delay is never removed.
    cluster=ClusterSettings(poll_ms=1_000, purge_delay_ms=12_000),
    maintenance=MaintenanceSettings(interval_ms=500, gc_interval_ms=1_500),
)
LATENCIES = Latencies.of(write=Latency(8, 80), read=Latency(4, 40))
FAULTS = Faults(
    fails=0.02,
    hangs=0.003,
    slow_down=0.01,
    fails_after_effect=0.01,
    hangs_after_effect=0.003,
    lands_late=0.01,
    lands_after_delete=0.01,
    conflict=0.005,
    conflict_after_effect=0.01,
    refused=0.01,
    answers_late=0.01,
    delete_lands_late=0.03,
    torn_read=0.01,
    late_ms_max=2_000,
    after_delete_ms_max=8_000,
)


@dataclass(frozen=True)
class Plan:
    """How much of everything happens."""

    faults: Faults = FAULTS
    settings: Settings = SETTINGS
    producers: int = 3
    batches: int = 150
    chaos: Sequence[str] = ("kill", "supersede", "pause", "clock", "failure")
    calm_seconds: float = 6.0  # between two events at most
    # How often a client asks, or changes something at, a broker that may be over.
    asks_superseded: float = 0.1
    changes_superseded: float = 0.1
    sick: float = 0.3  # how often a broker starts that cannot read one topic


@dataclass
class Report:
    """What a run amounted to."""

    acknowledged: int
    faults: int
    starts: int
    events: dict[str, int]


@dataclass
class Cluster:
    """One bucket and everybody who uses it."""

    raw: MemoryStore
    plan: Plan
    checker: Checker = field(default_factory=Checker)
    processes: list[Process] = field(default_factory=list)
    stores: list[FaultyStore] = field(default_factory=list)
    leader: Process | None = None
    topics: dict[str, Topic] = field(default_factory=dict)  # that producers write to
    newest_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    is_over: bool = False
    failure: BaseException | None = None
    committed: int = -1  # acknowledged by the group's coordinator
    tried: int = -1

    def note(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def job_store(self) -> Store:
        faulty = FaultyStore(self.raw, self.plan.faults, latencies=LATENCIES)
        self.stores.append(faulty)
        return stack(faulty, self.plan.settings.store).store

    async def serving(self, superseded: float | None = None) -> Process:
        """A broker that clients reach: mostly the newest, now and then one that was superseded."""
        share = self.plan.changes_superseded if superseded is None else superseded
        while True:
            self.check()
            process = self.leader
            if runtime.chance().random() < share:
                process = runtime.chance().choice(self.processes)
            if process is not None and not process.is_paused and not process.is_over:
                return process
            await pause(0.05, 0.3)

    async def start_process(self, *, sick: bool = False) -> None:
        """Start a broker, which takes over from whichever led."""
        for attempt in itertools.count():
            self.check()
            process = Process(self.raw, self.plan.settings, self.plan.faults, LATENCIES)
            self.stores.append(process.faulty)
            if sick:
                rule = Rule(Fault.SLOW_DOWN, key_part=f"/{SICK}.", times=ALWAYS)
                process.faulty.script.append(rule)
            try:
                await process.start(runtime.chance().randint(1, 3))
            except NeveError as error:
                if attempt == START_ATTEMPTS_MAX:
                    raise ViolationError(f"no broker can start: {error}") from error
                await pause(0.05, 0.3)
                continue
            self.processes.append(process)
            self.leader = process
            self.note("start")
            return


async def pause(low: float, high: float) -> None:
    await runtime.sleep(runtime.chance().uniform(low, high))


async def run(raw: MemoryStore, plan: Plan) -> Report:
    """Play it, then let the last broker bring everything in order, and check all of it."""
    cluster = Cluster(raw, plan)
    for base in range(0, IMPORTED_RECORDS, 10):
        foreign_bucket.add(raw.bucket, base)
    await cluster.start_process()
    background = runtime.Tasks(on_failure=cluster.fail)
    for name, partitions in ((STEADY, STEADY_PARTITIONS), (SICK, SICK_PARTITIONS)):
        await _until_done(cluster, lambda n=name, p=partitions: _create(cluster, n, p))
    for work in (_chaos, _administer, _commit_offsets, _ask_by_time, _read):
        background.start(_again(cluster, work))
    background.start(_import(cluster))
    await runtime.gather(*(_produce(cluster, number) for number in range(plan.producers)))
    cluster.is_over = True
    for process in cluster.processes:  # what waits for a paused one could not be cancelled
        process.resume()
    await background.close()
    cluster.check()
    await _bring_in_order(cluster)
    return Report(
        acknowledged=sum(batch.base_offset is not None for batch in cluster.checker.sent),
        faults=sum(store.injected for store in cluster.stores),
        starts=cluster.events["start"],
        events=cluster.events,
    )


async def _again(cluster: Cluster, work: Callable[[Cluster], Awaitable[None]]) -> None:
    while not cluster.is_over:
        await pause(0.05, 0.5)
        try:
            await work(cluster)
        except (NeveError, UnsettledError, TimeoutError):
            continue  # errors of the store are part of life


async def _until_done(cluster: Cluster, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        cluster.check()
        try:
            await work()
        except NeveError:
            await pause(0.05, 0.3)
        else:
            return


# -- clients ---------------------------------------------------------------------------------------


async def _produce(cluster: Cluster, number: int) -> None:
    for sequence in range(cluster.plan.batches):
        process = await cluster.serving(superseded=WRITES_SUPERSEDED)
        topic = runtime.chance().choice(sorted(cluster.topics.values(), key=lambda row: row.name))
        partition = runtime.chance().randrange(len(topic.partitions))
        batch = cluster.checker.send(
            number, sequence, (topic.topic_id, partition), runtime.chance().randint(1, 3)
        )
        try:
            async with runtime.deadline(8):
                await _send(cluster, process, topic, partition, batch)
        except (NeveError, TimeoutError):
            batch.refused = True
            await pause(0.05, 0.3)
        await pause(0.0, 0.2)


async def _send(
    cluster: Cluster, process: Process, topic: Topic, partition: int, batch: Sent
) -> None:
    now_ms = runtime.now_ms()
    records = [Record(at, now_ms, None, batch.payload) for at in range(batch.records)]
    await process.node.writer.room()
    appended = append_to(process.node, topic.id_bytes, partition, bytearray(build_batch(records)))
    await appended.commit.wait()
    cluster.checker.acknowledged(batch, appended.base_offset)
    place = (topic.topic_id, partition)
    cluster.newest_ms[place] = max(now_ms, cluster.newest_ms.get(place, 0))


async def _commit_offsets(cluster: Cluster) -> None:
    process = await cluster.serving(superseded=WRITES_SUPERSEDED)
    await process.broker.offsets_topic.ensure()
    groups = process.broker.groups
    if runtime.chance().random() < 0.5:
        acknowledged = cluster.committed
        found = await groups.fetch_offsets(GROUP, [(STEADY, 0)], process.broker.still_leading)
        if found.error is None and process.node.ended is None:
            offset = found.offsets[STEADY, 0].offset
            if not acknowledged <= offset <= cluster.tried:
                raise ViolationError(f"offset {offset} after {acknowledged} was committed")
        return
    # A coordinator that was superseded may write what it took before: only the newest is asked.
    if process is not cluster.leader:
        return
    cluster.tried += 1
    offsets = [OffsetToCommit(STEADY, 0, cluster.tried)]
    wanted = cluster.tried
    answers = await groups.commit_offsets(CommitRequest(group_id=GROUP, offsets=offsets))
    if answers[STEADY, 0] is None:
        cluster.committed = wanted


async def _ask_by_time(cluster: Cluster) -> None:
    """The answer that nothing is as young as a record that was acknowledged is a lie."""
    if not cluster.newest_ms:
        return
    process = await cluster.serving(superseded=cluster.plan.asks_superseded)
    places = sorted(cluster.newest_ms)
    newest = max(places, key=lambda place: cluster.newest_ms[place])
    topic_id, partition = runtime.chance().choice([newest, runtime.chance().choice(places)])
    topic = next((row for row in cluster.topics.values() if row.topic_id == topic_id), None)
    if topic is None:
        return
    asked_ms = cluster.newest_ms[topic_id, partition]
    request = LIST_OFFSETS.Request
    part = request.Partition(partition_index=partition, timestamp=asked_ms)
    body = request(replica_id=-1, topics=[request.Topic(name=topic.name, partitions=[part])])
    about = SimpleNamespace(api_version=LIST_OFFSETS.max_version)
    async with runtime.deadline(8):
        answer = await list_offsets.handle(process.broker, body, about)  # type: ignore[arg-type]
    row = answer.topics[0].partitions[0]
    if process.is_over or topic.name not in cluster.topics:
        return  # its connections are closed: the answer is not sent
    if row.error_code == ErrorCode.NONE and row.offset < 0:
        raise ViolationError(f"{topic.name}-{partition}: nothing since {asked_ms}, it is said")
    cluster.note("asked by time")


async def _read(cluster: Cluster) -> None:
    await pause(0.3, 1.5)
    name = runtime.chance().choice([STEADY, IMPORTED])
    topic = cluster.topics.get(name)
    if topic is not None:
        _, logs = await read_all(cluster.job_store(), name)
        for partition, log in logs.items():
            for offset, payload in log.items():
                cluster.checker.saw((topic.topic_id, partition), offset, payload)


# -- administration --------------------------------------------------------------------------------


async def _create(cluster: Cluster, name: str, partitions: int) -> None:
    process = await cluster.serving()
    began = runtime.monotonic()
    known = process.node.cluster.state.topic(name)
    try:
        topic = known or await process.node.topics.create(name, partitions, KEPT)
    finally:
        took = runtime.monotonic() - began
        if took > CREATE_SECONDS_MAX and not process.hindered and not process.is_over:
            cluster.fail(ViolationError(f"creating {name} took {took:.1f} s"))
    cluster.topics[name] = topic
    cluster.note("create")


async def _administer(cluster: Cluster) -> None:
    await pause(0.2, 1.0)
    choice = runtime.chance().random()
    churning = [name for name in cluster.topics if name.startswith("churn")]
    if choice < 0.5 or not churning:
        await _create(cluster, f"churn{runtime.chance().randrange(4)}", 2)
        return
    name = runtime.chance().choice(churning)
    process = await cluster.serving()
    if choice < 0.8:
        topic = cluster.topics.pop(name)
        try:
            await process.node.topics.delete(name)
        finally:
            # Whether or not the answer came: a producer must find out which topic there is.
            state = await ClusterLog(cluster.raw).refresh()
            if topic.topic_id in state.topics:
                cluster.topics[name] = state.topics[topic.topic_id]
            else:
                _forget(cluster, topic)
        cluster.note("delete")
    else:
        grown = await process.node.topics.add_partitions(
            name, len(cluster.topics[name].partitions) + 1
        )
        if cluster.topics.get(name) is not None:
            cluster.topics[name] = grown
        cluster.note("grow")


def _forget(cluster: Cluster, topic: Topic) -> None:
    for place in [row for row in cluster.newest_ms if row[0] == topic.topic_id]:
        del cluster.newest_ms[place]


async def _import(cluster: Cluster) -> None:
    """Import a topic beside the brokers; it grows at once, often before a broker has led it."""
    await pause(1.0, 10.0)
    while True:
        cluster.check()
        try:
            await import_kafscale(cluster.job_store())
            state = await ClusterLog(cluster.raw).refresh()
        except NeveError:
            await pause(0.1, 0.5)
            continue
        topic = state.topic(IMPORTED)
        if topic is not None and topic.partitions:
            break
    place = (topic.topic_id, 0)
    for offset in range(IMPORTED_RECORDS):
        cluster.checker.saw(place, offset, foreign_bucket.value(offset))
    cluster.note("import")
    if runtime.chance().random() < 0.7:

        async def grow() -> None:
            process = await cluster.serving()
            state = await ClusterLog(cluster.raw).refresh()
            found = state.topic(IMPORTED)
            assert found is not None
            if len(found.partitions) < 2:
                await process.node.topics.add_partitions(IMPORTED, 2)

        await _until_done(cluster, grow)
    state = await ClusterLog(cluster.raw).refresh()
    cluster.topics[IMPORTED] = state.topics[topic.topic_id]


# -- chaos -----------------------------------------------------------------------------------------


async def _chaos(cluster: Cluster) -> None:
    await pause(0.0, cluster.plan.calm_seconds)
    event = runtime.chance().choice(cluster.plan.chaos)
    cluster.note(event)
    await _EVENTS[event](cluster)


def _falls_ill(cluster: Cluster) -> bool:
    return runtime.chance().random() < cluster.plan.sick


async def _kill(cluster: Cluster) -> None:
    process, cluster.leader = cluster.leader, None
    if process is not None:
        await process.kill()
    await cluster.start_process(sick=_falls_ill(cluster))
    await _get_well(cluster)


async def _supersede(cluster: Cluster) -> None:
    """Another broker takes over. The first one notices late if no client writes to it meanwhile."""
    if runtime.chance().random() < 0.5:
        cluster.leader = None
        await pause(0.0, 1.0)
    await cluster.start_process(sick=_falls_ill(cluster))
    await _get_well(cluster)


async def _get_well(cluster: Cluster) -> None:
    process = cluster.leader
    if process is not None and process.faulty.script:
        await pause(1.0, 40.0)
        process.faulty.script.clear()


async def _stop_and_go(cluster: Cluster) -> None:
    process = cluster.leader
    if process is None:
        return
    process.pause()
    await pause(0.2, 2 * cluster.plan.calm_seconds)
    if runtime.chance().random() < 0.5:
        await cluster.start_process()
        await pause(0.0, 2.0)
    process.resume()


async def _set_clock(cluster: Cluster) -> None:
    if cluster.leader is not None:
        cluster.leader.set_clock(runtime.chance().uniform(-86_400, 86_400))


async def _fail_for_good(cluster: Cluster) -> None:
    """Its credentials are revoked, or its disk is full; another broker has better ones."""
    process, cluster.leader = cluster.leader, None
    if process is not None:
        process.fail_for_good(runtime.chance().choice((Fault.DENIED, Fault.FULL)))
        await pause(0.5, 4.0)
    await cluster.start_process()


_EVENTS: dict[str, Callable[[Cluster], Awaitable[None]]] = {
    "kill": _kill,
    "supersede": _supersede,
    "pause": _stop_and_go,
    "clock": _set_clock,
    "failure": _fail_for_good,
}


# -- the end ---------------------------------------------------------------------------------------


async def _bring_in_order(cluster: Cluster) -> None:
    for process in cluster.processes:
        process.resume()
        process.heal()
    for store in cluster.stores:
        await store.settle()
    last = cluster.leader
    if last is None or last.is_over or await _start_was_cut_off(cluster, last):
        await cluster.start_process()
        last = cluster.leader
        assert last is not None
        last.heal()
    for process in cluster.processes:
        if process is not last:
            await process.kill()
    await _wait_for_order(cluster, last)
    await _check_logs(cluster, last)
    await last.kill()
    for store in cluster.stores:
        await store.close()


async def _start_was_cut_off(cluster: Cluster, last: Process) -> bool:
    """Whether a later process registered and went no further: it is started again.

    Until then it counts as live, and deleted topics wait for it.
    """
    brokers = (await ClusterLog(cluster.raw).refresh()).brokers.items()
    return any(row.live and incarnation > last.node.incarnation for incarnation, row in brokers)


async def _wait_for_order(cluster: Cluster, last: Process) -> None:
    ends_at = runtime.monotonic() + ORDER_SECONDS
    while disorder := await _disorder(cluster, last):
        if runtime.monotonic() > ends_at:
            raise ViolationError(f"after {ORDER_SECONDS:.0f} s: {'; '.join(disorder)}")
        await runtime.sleep(5)


async def _disorder(cluster: Cluster, last: Process) -> list[str]:
    """What a broker with a store that works well has not yet brought in order."""
    node, state = last.node, await ClusterLog(cluster.raw).refresh()
    found = []
    if last.is_over:
        found.append(f"the last broker has ended: {node.ended}")
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader != node.incarnation:
                found.append(f"{topic.name}-{number} is led by {partition.leader}")
            elif node.leader_of(topic.id_bytes, number) is None:
                found.append(f"{topic.name}-{number} is not served")
    if node.rollups.unswept:
        found.append(f"unswept streams: {sorted(node.rollups.unswept)}")
    if state.deleted:
        found.append(f"deleted and kept: {sorted(row.name for row in state.deleted.values())}")
    if (
        not last.broker.offsets_topic.is_loaded
        and node.cluster.state.topic("__consumer_offsets") is not None
    ):
        await last.broker.offsets_topic.ensure()
        found.append("groups are not served")
    return found + _leftovers(cluster, state, node.incarnation)


def _leftovers(cluster: Cluster, state: ClusterState, own: int) -> list[str]:
    keys = cluster.raw.bucket.keys
    prefixes = tuple(topic_prefix(row.name, row.id_bytes) for row in state.topics.values())
    found = [
        f"{key} is left of a deleted topic"
        for key in keys
        if key.startswith(TOPICS_PREFIX) and not key.startswith(prefixes)
    ][:3]
    streams: dict[int, int] = {}
    for key in keys:
        stream = stream_of(key) if key.startswith(WAL_PREFIX) else None
        if stream is not None:
            streams[stream] = streams.get(stream, 0) + 1
    # The end seal and its checkpoint stay.
    kept = [row for row, count in streams.items() if row != own and count > 2]
    return [*found, *(f"stream {row} is neither needed nor retired" for row in kept)]


async def _check_logs(cluster: Cluster, last: Process) -> None:
    state = await ClusterLog(cluster.raw).refresh()
    starts, logs = {}, {}
    for topic in state.topics.values():
        if topic.name.startswith("__"):
            continue
        begun, found = await read_all(cluster.raw, topic.name)
        for partition, log in found.items():
            place = (topic.topic_id, partition)
            starts[place], logs[place] = begun[partition], log
            served = last.node.leader(topic.name, partition).log.next_offset
            if served != max(log, default=-1) + 1:
                raise ViolationError(f"{topic.name}-{partition} is served up to {served} only")
    checker = cluster.checker
    # What was deleted is not looked for.
    checker.sent = [batch for batch in checker.sent if batch.partition in logs]
    checker.seen = {at: payload for at, payload in checker.seen.items() if at[0] in logs}
    checker.starts.update(starts)
    checker.check(logs)
