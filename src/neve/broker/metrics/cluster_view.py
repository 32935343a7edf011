"""The brokers of the cluster, failovers, and partitions that move between brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from neve.cluster.membership import Membership
from neve.cluster.node import Node
from neve.cluster.state import ClusterState
from neve.serving.text import one, several

SLICE_TOPICS = 500


def cluster_view(node: Node, membership: Membership) -> Iterator[str]:
    state = node.cluster.state
    yield several("neve_brokers", [((name,), count) for name, count in _by_state(state).items()])
    led: Counter[int] = Counter()
    for at, topic in enumerate(state.topics.values(), 1):
        led.update(partition.leader for partition in topic.partitions)
        if not at % SLICE_TOPICS:
            yield ""
    live = sorted((row.node_id, key) for key, row in state.brokers.items() if row.live)
    leaders = [((str(node_id),), led[key]) for node_id, key in live]
    yield several("neve_broker_leaders", leaders)
    yield one("neve_cluster_log_position", node.cluster.view.position)
    yield one("neve_cluster_log_numbers_behind", node.cluster.numbers_behind)
    verdicts = [((str(reason),), count) for reason, count in membership.verdicts.items()]
    yield several("neve_dead_verdicts_total", verdicts)
    yield one("neve_brokers_declared_dead_total", membership.expired)
    yield one("neve_partitions_recovered_total", node.takeover.recovered)
    yield one("neve_partitions_pulled_total", membership.rebalancer.pulled)
    yield one("neve_partitions_released_total", node.releases.released)
    yield one("neve_rebalance_rounds_total", membership.rebalancer.rounds)


def _by_state(state: ClusterState) -> dict[str, int]:
    """Count the nodes in each state."""
    rows = [row for row in state.brokers.values() if not row.forgotten]
    live = {row.node_id for row in rows if row.live}
    draining = live.intersection(state.draining)
    return {
        "live": len(live) - len(draining),
        "draining": len(draining),
        "fenced": len({row.node_id for row in rows} - live),
    }
