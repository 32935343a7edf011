"""What a broker's metrics show of its cluster, while partitions and brokers come and go."""

from __future__ import annotations

from collections.abc import Sequence

from neve import runtime
from neve.broker.broker import Broker
from neve.broker.metrics.cluster_view import cluster_view
from neve.cluster.liveness.detector import Reason
from neve.cluster.log import ClusterLog
from support.two_brokers import refresh, two_running_brokers


def values(broker: Broker) -> dict[str, float]:
    """Every sample by its name and labels."""
    lines = "".join(cluster_view(broker.node, broker.membership)).splitlines()
    samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


async def until(broker: Broker, leaders: Sequence[int]) -> None:
    async with runtime.deadline(8):
        while _leaders(broker) != list(leaders):
            await runtime.sleep(0.02)


def _leaders(broker: Broker) -> list[float]:
    found = values(broker)
    return [found.get(f'neve_broker_leaders{{id="{at}"}}', -1) for at in (1, 2)]


async def test_a_move_counts_at_both_ends() -> None:
    async with two_running_brokers(idle=False) as (one, two):
        assert _leaders(one) == [2, 0]
        assert values(one)['neve_brokers{state="live"}'] == 2
        await one.node.cluster.rebalance()
        await until(one, (1, 1))
        await until(two, (1, 1))
        async with runtime.deadline(8):
            while not values(two)["neve_partitions_recovered_total"]:
                await runtime.sleep(0.02)
        first, second = values(one), values(two)
        assert first["neve_partitions_released_total"] == 1
        assert first["neve_rebalance_rounds_total"] == 0
        assert second["neve_partitions_pulled_total"] == 1
        assert second["neve_rebalance_rounds_total"] == 1
        assert first["neve_cluster_log_position"] == second["neve_cluster_log_position"]


async def test_brokers_are_counted_by_their_state() -> None:
    async with two_running_brokers() as (one, two):
        await one.node.cluster.set_preferred({_key(one, 0): (2,)})
        await one.node.releases.release({_key(one, 0): two.node.incarnation})
        await one.node.cluster.set_draining(2, draining=True)
        assert _states(one) == {"live": 1, "draining": 1, "fenced": 0}
        await one.node.cluster.expire(two.node.incarnation)
        assert _states(one) == {"live": 1, "draining": 0, "fenced": 1}
        await one.node.cluster.forget_node(2)
        assert _states(one) == {"live": 1, "draining": 0, "fenced": 0}


def _states(broker: Broker) -> dict[str, float]:
    found = values(broker)
    return {
        name: found[f'neve_brokers{{state="{name}"}}'] for name in ("live", "draining", "fenced")
    }


def _key(broker: Broker, number: int) -> tuple[str, int]:
    topic = broker.node.cluster.state.topic("t")
    assert topic is not None
    return topic.topic_id, number


async def test_numbers_that_only_others_have_read_are_counted() -> None:
    async with two_running_brokers() as (one, two):
        await refresh(one, two)
        assert values(two)["neve_cluster_log_numbers_behind"] == 0
        other = ClusterLog(one.stack.store)
        await other.set_draining(1, draining=True)
        await other.set_draining(1, draining=False)
        two.node.cluster.seen(other.view.position)
        assert values(two)["neve_cluster_log_numbers_behind"] == 2
        await refresh(two)
        assert values(two)["neve_cluster_log_numbers_behind"] == 0


async def test_a_dead_broker_counts_where_it_was_found_and_declared_dead() -> None:
    async with two_running_brokers(idle=False) as (one, two):
        await two.membership.close()
        await two.server.stop_accepting()
        two.server.close_all("it is to look dead")
        async with runtime.deadline(30):
            while not values(one)["neve_brokers_declared_dead_total"]:
                await runtime.sleep(0.1)
        found = values(one)
        reasons = [found[f'neve_dead_verdicts_total{{reason="{each}"}}'] for each in Reason]
        assert sum(reasons) == 1
