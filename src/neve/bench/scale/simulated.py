"""Measures simulated clusters: what they cost while idle, changes, failovers, and a join.

Everything runs on the virtual clock, so the figures do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from neve import runtime
from neve.bench.scale.cluster import SimulatedCluster, Size, wait_until
from neve.records.reference import Record, build_batch
from neve.store.wrapper import Operation

SETTLE_SECONDS = 60.0
IDLE_SECONDS_DEFAULT = 600.0
"""Ten times the longest interval at which a broker that hears of others looks into the bucket."""
PROPOSERS = 10
PROPOSE_SECONDS = 30.0
VALUE_BYTES = 1024

HOURS_PER_MONTH = 730
# S3 Standard, in dollars per request. Deletes cost nothing.
PUT_DOLLARS, GET_DOLLARS = 0.005 / 1000, 0.0004 / 1000
DOLLARS: Mapping[Operation, float] = MappingProxyType(
    {
        "get": GET_DOLLARS,
        "get_range": GET_DOLLARS,
        "put": PUT_DOLLARS,
        "create": PUT_DOLLARS,
        "list": PUT_DOLLARS,
        "delete": 0.0,
    }
)

STEPS = ("start", "idle", "changes", "killed", "silent", "join")
"""What `measure_changes` does, one after the other."""

Figures = dict[str, float]
Step = Callable[[str], None]


def measure_idle(size: Size, seconds: float, *, seed: int) -> Figures:
    """Return what a cluster without clients costs."""

    async def measured() -> Figures:
        cluster = SimulatedCluster(size)
        await cluster.start()
        await runtime.sleep(SETTLE_SECONDS)
        figures = await _idle(cluster, seconds)
        await cluster.close()
        return figures

    return runtime.simulate(measured(), seed=seed)


def measure_changes(
    size: Size, seconds: float, *, seed: int, step: Step = lambda _: None
) -> Figures:
    """Return what a cluster costs while idle, and how it changes: one after the other."""

    async def measured() -> Figures:
        cluster = SimulatedCluster(size)
        step(STEPS[0])
        await cluster.start()
        await runtime.sleep(SETTLE_SECONDS)
        figures: Figures = {}
        parts: tuple[Callable[[], Awaitable[Figures]], ...] = (
            lambda: _idle(cluster, seconds),
            lambda: _changes(cluster),
            lambda: _failover(cluster, "killed", cluster.kill),
            lambda: _failover(cluster, "silent", cluster.silence),
            lambda: _join(cluster),
        )
        for name, part in zip(STEPS[1:], parts, strict=True):
            step(name)
            figures |= await part()
        await cluster.close()
        return figures

    return runtime.simulate(measured(), seed=seed)


async def _idle(cluster: SimulatedCluster, seconds: float) -> Figures:
    for broker in cluster.brokers.values():
        broker.store.requests.clear()
    await runtime.sleep(seconds)
    dollars = requests = 0.0
    for broker in cluster.brokers.values():
        requests += broker.store.requests.total()
        dollars += sum(
            DOLLARS[operation] * count for operation, count in broker.store.requests.items()
        )
    hours = seconds / 3600
    return {
        "idle.dollars": dollars / hours * HOURS_PER_MONTH,
        "idle.requests": requests / hours / len(cluster.brokers),
    }


async def _changes(cluster: SimulatedCluster) -> Figures:
    """Let several brokers change the cluster at once, each as often as it can."""
    first = await cluster.position()
    ends_at = runtime.monotonic() + PROPOSE_SECONDS

    async def propose(incarnation: int) -> None:
        log = cluster.brokers[incarnation].node.cluster
        while runtime.monotonic() < ends_at:
            await log.producer_ids(incarnation, 1)

    began = runtime.monotonic()
    await runtime.gather(*(propose(each) for each in sorted(cluster.brokers)[:PROPOSERS]))
    changes = await cluster.position() - first
    return {"log.changes": changes / (runtime.monotonic() - began)}


async def _failover(
    cluster: SimulatedCluster, name: str, end: Callable[[int], Awaitable[None]]
) -> Figures:
    """End a broker with a record in the tail of each partition."""
    victim = min(cluster.brokers)
    await _write_everywhere(cluster, victim)
    first = await cluster.position()
    began = runtime.monotonic()
    await end(victim)
    await wait_until("every partition is served", cluster.is_all_served)
    served = runtime.monotonic() - began
    await wait_until("the load is balanced", cluster.is_balanced)
    balanced = runtime.monotonic() - began
    return {
        f"failover.{name}": served,
        f"failover.{name}.balanced": balanced,
        f"failover.{name}.records": float(await cluster.position() - first),
    }


async def _write_everywhere(cluster: SimulatedCluster, incarnation: int) -> None:
    node = cluster.brokers[incarnation].node
    batch = build_batch([Record(0, runtime.now_ms(), None, bytes(VALUE_BYTES))], leader_epoch=0)
    for leader in list(node.led.serving.values()):
        await node.writer.room()
        leader.append(bytearray(batch))
    await node.writer.flush()


async def _join(cluster: SimulatedCluster) -> Figures:
    first = await cluster.position()
    began = runtime.monotonic()
    joined = await cluster.join(cluster.size.brokers + 1)
    share = cluster.size.partitions // len(cluster.brokers)
    await wait_until(
        "the new broker serves its share", lambda: len(joined.node.led.serving) >= share
    )
    serves = runtime.monotonic() - began
    await wait_until("the load is balanced", cluster.is_balanced)
    return {
        "join.seconds": serves,
        "join.records": float(await cluster.position() - first),
    }
