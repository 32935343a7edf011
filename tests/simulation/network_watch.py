"""What is seen inside the brokers of a simulated cluster while they run.

The bucket forgets a deleted topic only when no live broker can write objects of it any more: that
is checked at the moment at which a broker proposes it. And it is noted when a broker could not read
the cluster log for an administrator, because what it answers then may be old.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.broker import Broker
from simulation.network_plan import TOPIC_PURGED

if TYPE_CHECKING:
    from simulation.network_cluster import Cluster


def watch(cluster: Cluster, node_id: int, broker: Broker) -> None:
    """Watch a broker until it ends."""
    log = broker.node.cluster
    log.purged = partial(_purged, cluster, broker, log.purged)  # type: ignore[method-assign]
    read = partial(_read, cluster, node_id, broker, broker.read_cluster_log)
    broker.read_cluster_log = read  # type: ignore[method-assign]


async def _purged(
    cluster: Cluster, broker: Broker, purged: Callable[[str], Awaitable[None]], topic_id: str
) -> None:
    """Record that a topic is purged, which must be true."""
    live = {key for key, row in broker.node.cluster.state.brokers.items() if row.live}
    for other in cluster.running.values():
        node = other.node
        may_write = node.led.may_write(topic_id) or node.takeover.is_taking(topic_id)
        if node.incarnation in live and node.ended is None and may_write:
            cluster.promises.violated(
                f"{topic_id} is purged while {node.incarnation} may write to it"
            )
    cluster.report.note(TOPIC_PURGED)
    await purged(topic_id)


async def _read(
    cluster: Cluster, node_id: int, broker: Broker, read: Callable[[], Awaitable[None]]
) -> None:
    """Read the cluster log. Note if that was not possible in time."""
    began = runtime.monotonic()
    await read()
    if broker.node.cluster.read_at < began:
        cluster.unread_at[node_id] = runtime.monotonic()
