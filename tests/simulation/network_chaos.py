"""What happens to a simulated cluster: to its network, its processes, its bucket, its members.

Each event ends by itself after some seconds. Several go on at the same time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator

from neve import runtime
from neve.errors import NeveError
from neve.log.keys import wal_stream
from neve.store.faults import Fault, Faults, FaultyStore, Rule
from neve.store.wrapper import Call, Operation
from simulation.network_admin import delete_a_topic, reassign
from simulation.network_clients import pause
from simulation.network_cluster import BUCKET, Cluster, host_name, wal_host

CLOCK_SECONDS_MAX = 1_200.0
CLUSTER_LOG = "meta/log/"
RELEASE_SECONDS_MAX = 8.0
CALLS_MAX = 1_000_000
ODD = Faults(
    fails=0.05,
    fails_after_effect=0.05,
    hangs=0.02,
    hangs_after_effect=0.02,
    lands_late=0.05,
    conflict=0.05,
    conflict_after_effect=0.1,
    refused=0.1,
    answers_late=0.1,
    delete_lands_late=0.1,
    late_ms_max=4_000,
)


async def trouble(cluster: Cluster) -> None:
    """Cause one event after the other until the run is over."""
    while not cluster.is_over:
        await pause(0.5, cluster.plan.calm_seconds)
        event = runtime.chance().choice(cluster.plan.chaos)
        cluster.report.note(event)
        cluster.report.faults += 1
        with contextlib.suppress(NeveError):
            await EVENTS[event](cluster)


def _some(cluster: Cluster, count: int = 1) -> list[int]:
    return runtime.chance().sample(cluster.nodes, count)


def _name(cluster: Cluster) -> str:
    return host_name(_some(cluster)[0])


# -- the network -----------------------------------------------------------------------------------


async def _cut(cluster: Cluster) -> None:
    """Cut the way between two brokers, or one direction of it."""
    one, two = (host_name(each) for each in _some(cluster, 2))
    cluster.network.cut(one, two, one_way=runtime.chance().random() < 0.5)
    await pause(0.5, 8.0)
    cluster.network.heal(one, two)


async def _isolate(cluster: Cluster) -> None:
    name = _name(cluster)
    outgoing, incoming = runtime.chance().choice([(True, True), (True, False), (False, True)])
    cluster.network.isolate(name, incoming=incoming, outgoing=outgoing)
    await pause(0.5, 8.0)
    cluster.network.heal(name)


async def _shun(cluster: Cluster) -> None:
    """Cut a broker off from all others and from the bucket: clients still reach it."""
    chosen = _some(cluster)[0]
    others = [host_name(each) for each in cluster.nodes if each != chosen]
    for name in (*others, BUCKET):
        cluster.network.cut(host_name(chosen), name)
    await pause(2.0, 15.0)
    # The bucket first: it can write again before it learns what has happened meanwhile.
    for name in (BUCKET, *others):
        cluster.network.heal(host_name(chosen), name)


async def _cut_store(cluster: Cluster) -> None:
    count = runtime.chance().randint(1, len(cluster.nodes))
    names = [host_name(each) for each in _some(cluster, count)]
    for name in names:
        cluster.network.cut(name, BUCKET)
    await pause(0.5, 8.0)
    for name in names:
        cluster.network.heal(name, BUCKET)


async def _cut_wal_store(cluster: Cluster) -> None:
    """Cut all brokers off from the WAL store of a rack."""
    store = wal_host(runtime.chance().choice(list(cluster.wal_buckets)))
    names = [host_name(each) for each in cluster.nodes]
    for name in names:
        cluster.network.cut(name, store)
    await pause(0.5, 8.0)
    for name in names:
        cluster.network.heal(name, store)


async def _slow_link(cluster: Cluster) -> None:
    one, two = (host_name(each) for each in _some(cluster, 2))
    cluster.network.slow(one, two, (0.1, 1.0), loss=0.05)
    await pause(0.5, 6.0)
    cluster.network.heal(one, two)


# -- processes -------------------------------------------------------------------------------------


async def _crash(cluster: Cluster) -> None:
    cluster.network.host(_name(cluster)).crash()


async def _crash_behind_a_gap(cluster: Cluster) -> None:
    """Crash a broker while one number of its stream is missing, and later ones are there."""
    node_id = _some(cluster)[0]
    if node_id not in cluster.running:
        return
    stream = wal_stream(cluster.running[node_id].node.incarnation)
    lost: list[str] = []

    def is_lost(call: Call) -> bool:
        if not lost and stream.number_of(call.key) is not None:
            lost.append(call.key)
        return call.key in lost

    store = cluster.stores[node_id]
    store.script.append(Rule(Fault.HANGS, "create", times=CALLS_MAX, matches=is_lost))
    await pause(0.3, 1.5)
    cluster.network.host(host_name(node_id)).crash()


async def _pause(cluster: Cluster) -> None:
    host = cluster.network.host(_name(cluster))
    host.pause()
    await pause(0.2, 10.0)
    host.resume()


async def _stop(cluster: Cluster) -> None:
    node_id = _some(cluster)[0]
    cluster.down.add(node_id)
    await pause(0.5, 10.0)
    cluster.down.discard(node_id)


async def _turn_clock(cluster: Cluster) -> None:
    """Let a broker's wall clock jump, for good."""
    ahead = runtime.chance().uniform(-CLOCK_SECONDS_MAX, CLOCK_SECONDS_MAX)
    cluster.clocks_ahead[_some(cluster)[0]] = ahead


# -- members of the cluster ------------------------------------------------------------------------


async def _drain(cluster: Cluster) -> None:
    node_id, log = _some(cluster)[0], cluster.log()
    await log.set_draining(node_id, draining=True)
    await pause(0.5, 8.0)
    await log.set_draining(node_id, draining=False)


async def _hinder_release(cluster: Cluster) -> None:
    """Drain a broker, and cut it off from the bucket while it releases its partitions."""
    node_id, log = _some(cluster)[0], cluster.log()
    await log.set_draining(node_id, draining=True)
    await pause(0.1, 2.0)
    cluster.network.cut(host_name(node_id), BUCKET)
    await pause(1.0, 5.0)
    cluster.network.heal(host_name(node_id), BUCKET)
    await pause(0.5, 3.0)
    await log.set_draining(node_id, draining=False)


async def _expire(cluster: Cluster) -> None:
    """Declare a broker dead that may well be alive."""
    log = cluster.log()
    live = [row for row in (await log.refresh()).brokers.values() if row.live]
    if live:
        await log.expire(runtime.chance().choice(live).incarnation)


async def _expire_unheard(cluster: Cluster) -> None:
    """Declare a broker dead that does not hear of it, and whose stream is sealed late.

    It goes on committing and tiering meanwhile. Then one successor after the other can seal its
    stream: the first may have rolled it up when the last gets there.
    """
    log = cluster.log()
    state = await log.refresh()
    live = {row.node_id: row.incarnation for row in state.brokers.values() if row.live}
    chosen = runtime.chance().choice(sorted(cluster.stores))
    if chosen not in live:
        return
    stream = wal_stream(live[chosen]).prefix
    others = [each for each in cluster.stores if each != chosen]
    with contextlib.ExitStack() as hindrances:
        hindrances.enter_context(_out_of_reach(cluster.stores[chosen], CLUSTER_LOG))
        for each in others:
            cluster.network.cut(host_name(chosen), host_name(each))
            hindrances.callback(cluster.network.heal, host_name(chosen), host_name(each))
        late = [
            hindrances.enter_context(_out_of_reach(cluster.stores[each], stream, "create"))
            for each in runtime.chance().sample(others, len(others))
        ]
        await log.expire(live[chosen])
        for reach in late:
            await pause(1.0, 4.0)
            reach()


@contextlib.contextmanager
def _out_of_reach(
    store: FaultyStore, prefix: str, operation: Operation | None = None
) -> Iterator[Callable[[], None]]:
    """Let calls under a prefix hang, so that they time out, until the result is called."""
    rule = Rule(Fault.HANGS, operation, prefix, times=CALLS_MAX)

    def end() -> None:
        store.script[:] = [each for each in store.script if each is not rule]

    store.script.append(rule)
    try:
        yield end
    finally:
        end()


async def _join(cluster: Cluster) -> None:
    if len(cluster.nodes) < cluster.plan.brokers_max:
        cluster.join()


async def _leave(cluster: Cluster) -> None:
    """Stop a broker for good, if others have joined."""
    if len(cluster.nodes) > cluster.plan.brokers:
        node_id = _some(cluster)[0]
        cluster.nodes.remove(node_id)
        cluster.down.add(node_id)
        await pause(1.0, 5.0)
        cluster.down.discard(node_id)


# -- the bucket ------------------------------------------------------------------------------------


async def _slow_store(cluster: Cluster) -> None:
    store = _store(cluster)
    store.latencies = cluster.plan.slow_latencies
    await pause(1.0, 6.0)
    store.latencies = cluster.plan.latencies


async def _odd_store(cluster: Cluster) -> None:
    """Let a bucket lie more often than it is right to one broker."""
    await _with_faults(cluster, ODD)


async def _deny(cluster: Cluster) -> None:
    await _with_faults(cluster, dataclasses.replace(cluster.plan.faults, denied=1.0))


async def _fill(cluster: Cluster) -> None:
    await _with_faults(cluster, dataclasses.replace(cluster.plan.faults, full=0.5))


async def _with_faults(cluster: Cluster, faults: Faults) -> None:
    store = _store(cluster)
    store.faults = faults
    await pause(0.3, 6.0)
    store.faults = cluster.plan.faults


def _store(cluster: Cluster) -> FaultyStore:
    """The bucket or a WAL store as some broker reaches it."""
    stores = cluster.stores_of(runtime.chance().choice(sorted(cluster.stores)))
    return runtime.chance().choice(stores)


async def _slow_cluster_log(cluster: Cluster) -> None:
    """Drain a broker whose first record of that lands late; then only its WAL can be reached."""
    node_id, log = _some(cluster)[0], cluster.log()
    if node_id not in cluster.stores:
        return
    store = cluster.stores[node_id]
    late = Rule(Fault.LANDS_LATE, "create", CLUSTER_LOG)

    def is_later(_: Call) -> bool:
        return late.seen > 0

    unreachable = Rule(Fault.FAILS, None, CLUSTER_LOG, times=CALLS_MAX, matches=is_later)
    store.script += [late, unreachable]
    await log.set_draining(node_id, draining=True)
    waits_until = runtime.monotonic() + RELEASE_SECONDS_MAX
    while not late.seen and runtime.monotonic() < waits_until:
        await runtime.sleep(0.1)
    await pause(1.0, 5.0)
    store.script.clear()
    await log.set_draining(node_id, draining=False)


EVENTS: dict[str, Callable[[Cluster], Awaitable[None]]] = {
    "cut": _cut,
    "isolate": _isolate,
    "shun": _shun,
    "store cut": _cut_store,
    "WAL store cut": _cut_wal_store,
    "slow link": _slow_link,
    "crash": _crash,
    "crash behind a gap": _crash_behind_a_gap,
    "pause": _pause,
    "stop": _stop,
    "clock": _turn_clock,
    "drain": _drain,
    "hinder release": _hinder_release,
    "expire": _expire,
    "expire unheard": _expire_unheard,
    "join": _join,
    "leave": _leave,
    "reassign": reassign,
    "delete a topic": delete_a_topic,
    "store slow": _slow_store,
    "store odd": _odd_store,
    "store denied": _deny,
    "store full": _fill,
    "cluster log slow": _slow_cluster_log,
}
