"""A whole cluster in one process: brokers and clients over the simulated network and one bucket.

Brokers are real: their sockets, their pings, their take-overs, releases and rebalancing, their
groups. They are crashed, paused, cut off from each other, from the bucket or from clients, drained,
declared dead, stopped, and joined by others; one that was declared dead starts again by itself, as
`neve serve` does. Clients work only from what the brokers answer, and the checker only from what
clients were told. Some consumers are in the rack of a broker, and read from the followers that
leaders name to them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

from neve import runtime
from neve.broker import error_codes
from neve.cluster import log_view
from neve.cluster.preferred import first_leader
from neve.cluster.state import NO_LEADER
from neve.errors import (
    ConflictError,
    DeniedError,
    FullError,
    NeveError,
    StoreFailedError,
    UnavailableError,
)
from neve.log import create
from neve.log.keys import CLUSTER_LOG_PREFIX
from neve.log.series import Series, View
from neve.protocol.codes import ErrorCode
from neve.store.faults import Faults, Latencies
from simulation.checker import ViolationError
from simulation.network_chaos import trouble
from simulation.network_clients import (
    TOPIC,
    Client,
    Consumer,
    Producer,
    RetryError,
    again,
    ask_for_the_end,
)
from simulation.network_cluster import Cluster, rack_name
from simulation.network_groups import Groups, Member
from simulation.network_plan import Plan, Report
from simulation.network_promises import Promises, StalledError
from simulation.network_topics import Churn, create_first
from simulation.truth import UnsettledError, read_all
from support.simulated_network import Network, simulate

ORDER_SECONDS_MAX = 300.0
UNDECIDED_SECONDS_MAX = 1.0
CHECKPOINT_NUMBERS = 8
READS_MAX = 20
WATCH_SECONDS = 0.25
# Errors behind KAFKA_STORAGE_ERROR that say what is true: the bucket cannot be used.
_STORE_FAILS = (UnavailableError, ConflictError, FullError, DeniedError, StoreFailedError)


def play(seed: int, plan: Plan | None = None) -> tuple[Report, str]:
    """Run one seed. Returns its report and the digest of its packets."""

    async def scenario(network: Network) -> tuple[Report, str]:
        return await _run(network, plan or Plan())

    # As short as everything else here, so that proposals stay undecided in a run, and so that
    # brokers that were away find the cluster log trimmed.
    with (
        mock.patch.object(create, "UNDECIDED_SECONDS_MAX", UNDECIDED_SECONDS_MAX),
        mock.patch.object(log_view, "CHECKPOINT_NUMBERS", CHECKPOINT_NUMBERS),
        _counted_jumps() as jumps,
    ):
        report, digest = simulate(scenario, seed=seed)
    report.jumps = len(jumps)
    return report, digest


@contextlib.contextmanager
def _counted_jumps() -> Iterator[list[int]]:
    """Count how often a process found the cluster log trimmed, and went on from a checkpoint."""
    jumps: list[int] = []
    gone: set[tuple[Series[Any, Any], int]] = set()  # or not written yet
    advance, read_from = Series.advance_readable, Series._read_from

    async def noted(self: Series[Any, Any], view: View[Any]) -> Any:
        entries, unreadable = await read_from(self, view)
        if not entries and not unreadable:
            gone.add((self, view.position))
        return entries, unreadable

    async def counted(self: Series[Any, Any], view: View[Any]) -> Any:
        gone.discard((self, view.position))
        progress, unreadable = await advance(self, view)
        has_jumped = progress.entries is None and (self, view.position) in gone
        if has_jumped and view.position and self.keys.prefix == CLUSTER_LOG_PREFIX:
            jumps.append(view.position)
        return progress, unreadable

    with (
        mock.patch.object(Series, "_read_from", noted),
        mock.patch.object(Series, "advance_readable", counted),
    ):
        yield jumps


async def _run(network: Network, plan: Plan) -> tuple[Report, str]:
    cluster = Cluster(network, plan)
    try:
        with _no_damage(cluster.promises):
            consumers = await _live(cluster)
            cluster.promises.check()
            await _bring_in_order(cluster)
            for consumer in consumers:
                await _read_to_the_end(cluster, consumer)
            await _check_logs(cluster)
            await network.host("judge").run(_check_groups(cluster))
            cluster.promises.check()
    finally:
        cluster.is_over = True
        for close in cluster.closing:
            close()
    report, sent = cluster.report, cluster.promises.checker.sent
    report.acknowledged = sum(row.base_offset is not None for row in sent)
    report.refused = sum(row.refused for row in sent)
    cluster.count_faults()
    return report, network.digest


async def _live(cluster: Cluster) -> list[Consumer]:
    """Let clients work and trouble happen until the producers have sent what they have.

    Returns the consumers, which go on reading.
    """
    network, plan, promises = cluster.network, cluster.plan, cluster.promises
    cluster.start()
    tasks = runtime.Tasks(on_failure=promises.fail)

    await network.host("creator").run(create_first(Client(cluster), plan.partitions))
    asker, consumers = Client(cluster), _consumers(cluster)
    for number, consumer in enumerate(consumers):
        tasks.start(network.host(f"reader{number}").run(again(cluster, consumer.read_some)))
    tasks.start(
        network.host("asker").run(
            again(cluster, lambda: ask_for_the_end(asker, plan.partitions), 0.2)
        )
    )
    for number in range(plan.groups * plan.members):
        member = Member(Client(cluster), f"g{number % plan.groups}", plan.partitions)
        tasks.start(network.host(f"member{number}").run(member.run()))
    if plan.has_topic_churn:
        tasks.start(network.host("churn").run(Churn(Client(cluster)).run()))
    tasks.start(_watch_leaders(cluster))
    makers = [tasks.start(trouble(cluster)) for _ in range(plan.troublemakers)]
    producers = [
        Producer(Client(cluster), number, is_idempotent=number % 2 == 0)
        for number in range(plan.producers)
    ]
    await runtime.gather(
        *(
            network.host(f"producer{number}").run(each.run(plan.batches, plan.partitions))
            for number, each in enumerate(producers)
        )
    )
    for maker in makers:
        maker.cancel()
    return consumers


def _consumers(cluster: Cluster) -> list[Consumer]:
    """A consumer that reads from leaders, and those in the rack of a broker."""
    plan = cluster.plan
    racks = [rack_name(runtime.chance().randint(1, plan.brokers)) for _ in range(plan.near)]
    return [Consumer(Client(cluster, rack), plan.partitions) for rack in ("", *racks)]


async def _watch_leaders(cluster: Cluster) -> None:
    """In every state of the cluster log a partition's leader is a live process, or there is none.

    The only way to see that from outside: clients would wait for a leader that never comes.
    """
    log = cluster.log()
    while not cluster.is_over:
        state = await log.refresh()
        for topic in state.topics.values():
            for number, partition in enumerate(topic.partitions):
                leader = state.brokers.get(partition.leader)
                if partition.leader != NO_LEADER and (leader is None or not leader.live):
                    cluster.promises.violated(
                        f"{topic.name}-{number} is led by {partition.leader}, which has ended"
                    )
        await runtime.sleep(WATCH_SECONDS)


class _Damage(logging.Handler):
    """Fails a run in which a broker says that something cannot be read."""

    def __init__(self, promises: Promises) -> None:
        super().__init__()
        self._promises = promises

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "cannot be read" in message:
            self._promises.violated(message)


@contextlib.contextmanager
def _no_damage(promises: Promises) -> Iterator[None]:
    """Nothing is damaged in these runs.

    So no answer may be due to a damaged or missing object, and no broker may report one.
    """
    found = error_codes._found

    def watched(error: NeveError, for_request: Any) -> tuple[ErrorCode, str]:
        code, message = found(error, for_request)
        if code == ErrorCode.KAFKA_STORAGE_ERROR and not isinstance(error, _STORE_FAILS):
            promises.violated(f"an answer is {code.name} because of {error!r}")
        return code, message

    handler, logger = _Damage(promises), logging.getLogger("neve")
    logger.addHandler(handler)
    try:
        with mock.patch.object(error_codes, "_found", watched):
            yield
    finally:
        logger.removeHandler(handler)


# -- the end ---------------------------------------------------------------------------------------


async def _bring_in_order(cluster: Cluster) -> None:
    """Let everything work again, and wait until every partition is served by a live broker.

    Leaders are balanced by then, and nothing is left of deleted topics.
    """
    cluster.is_calm = True
    for store in (each for node_id in cluster.stores for each in cluster.stores_of(node_id)):
        store.faults, store.latencies = Faults(), Latencies()
        store.script.clear()
    cluster.down.clear()
    for node_id in range(1, cluster.last_node + 1):
        cluster.network.host(f"b{node_id}").resume()
    cluster.network.heal()
    log = cluster.log()
    for node_id in (await log.refresh()).draining:
        await log.set_draining(node_id, draining=False)
    ends_at = runtime.monotonic() + ORDER_SECONDS_MAX
    while disorder := await _disorder(cluster):
        cluster.promises.check()
        if runtime.monotonic() > ends_at:
            raise StalledError(f"after {ORDER_SECONDS_MAX:.0f} s: {'; '.join(disorder)}")
        await runtime.sleep(1)


async def _read_to_the_end(cluster: Cluster, consumer: Consumer) -> None:
    """Wait until a consumer has read all that was acknowledged."""
    ends = dict(cluster.promises.ends)
    ends_at = runtime.monotonic() + ORDER_SECONDS_MAX
    while unread := consumer.unread(ends):
        cluster.promises.check()
        if runtime.monotonic() > ends_at:
            raise ViolationError(f"a consumer has not read to the end: {unread}")
        await runtime.sleep(1)


async def _disorder(cluster: Cluster) -> list[str]:
    state = await cluster.log().refresh()
    live = {row.incarnation: row.node_id for row in state.brokers.values() if row.live}
    by_node = {node_id: incarnation for incarnation, node_id in live.items()}
    found = []
    if sorted(live.values()) != sorted(cluster.nodes):
        found.append(f"live nodes: {sorted(live.values())}")
    counts = dict.fromkeys(live, 0)
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            broker = cluster.running.get(live.get(partition.leader, -1))
            if broker is None or broker.node.incarnation != partition.leader:
                found.append(f"{topic.name}-{number} is led by {partition.leader}")
                continue
            preferred = first_leader(topic.preferred.get(number, ()), by_node)
            if preferred is None:
                counts[partition.leader] += 1
            elif preferred != partition.leader:
                found.append(f"{topic.name}-{number} is not led by {preferred}")
            leader = broker.node.leader_of(topic.id_bytes, number)
            if leader is None:
                found.append(f"{topic.name}-{number} is not served by {partition.leader}")
            elif topic.name == TOPIC and leader.log.high_watermark < leader.log.next_offset:
                found.append(f"{topic.name}-{number} has records that are not committed")
    if counts and max(counts.values()) - min(counts.values()) > 1:
        found.append(f"leaders are not balanced: {counts}")
    if state.deleted:
        found.append(f"deleted topics: {sorted(state.deleted)}")
    topic = state.topic(TOPIC)
    assert topic is not None
    cluster.report.epochs = sum(row.epoch for row in topic.partitions)
    return found


async def _check_logs(cluster: Cluster) -> None:
    """Compare what the bucket has with what clients were told, and with what brokers serve."""
    starts, logs = await _read(cluster)
    checker = cluster.promises.checker
    ours = {at: value for at, value in checker.seen.items() if at[0] in logs}
    checker.seen = ours  # of topics that still exist
    checker.starts.update(starts)
    checker.check(dict(logs))
    state = await cluster.log().refresh()
    topic = state.topic(TOPIC)
    assert topic is not None
    for number, partition in enumerate(topic.partitions):
        owner = cluster.running.get(state.brokers[partition.leader].node_id)
        if owner is None or owner.node.leader_of(topic.id_bytes, number) is None:
            continue  # it has moved again
        served = owner.node.leader(TOPIC, number).log.next_offset
        if served != max(logs[number], default=-1) + 1:
            raise ViolationError(f"partition {number} is served up to {served} only")


async def _read(cluster: Cluster) -> tuple[dict[int, int], dict[int, dict[int, bytes]]]:
    """Read the topic from the bucket. It is tiered meanwhile, so that may take several attempts."""
    failure: Exception = UnsettledError()
    for _ in range(READS_MAX):
        try:
            return await read_all(cluster.raw, TOPIC)
        except (UnsettledError, NeveError) as error:
            failure = error
            await runtime.sleep(0.5)
        except AssertionError as error:
            raise ViolationError(f"the log has an offset twice: {error}") from error
    raise ViolationError(f"the log cannot be read: {failure!r}")


async def _check_groups(cluster: Cluster) -> None:
    """Ask the coordinators where each group is now."""
    for number in range(cluster.plan.groups):
        groups = Groups(Client(cluster), f"g{number}")
        ends_at = runtime.monotonic() + ORDER_SECONDS_MAX
        while True:
            try:
                await groups.committed(list(range(cluster.plan.partitions)))
            except RetryError as error:
                if runtime.monotonic() > ends_at:
                    raise StalledError(f"group g{number}: {error}") from error
                await runtime.sleep(0.5)
            else:
                break
