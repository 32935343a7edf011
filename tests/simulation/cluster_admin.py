"""What administrators do to a simulated cluster: they choose leaders, and delete topics.

The bucket forgets a deleted topic only when no live broker can write objects of it any more: that
is checked at the moment at which a broker proposes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.log import ClusterLog
from neve.errors import NeveError
from neve.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from neve.protocol.messages.elect_leaders import ELECT_LEADERS
from neve.records.reference import Record, build_batch
from neve.serving.addresses import Address
from simulation.checker import ViolationError
from support.wire import Wire

if TYPE_CHECKING:
    from simulation.cluster_network import Cluster

PORT = 9092
ADMIN_SECONDS_MAX = 6.0
DOOMED, DOOMED_PARTITIONS = "doomed", 3
_LOST = (OSError, EOFError, TimeoutError)


async def _ask(cluster: Cluster, work: Callable[[Wire], Awaitable[None]]) -> bool:
    """Send something to any broker. Returns whether it was answered."""
    node_id = runtime.chance().randint(1, cluster.plan.brokers)

    async def there() -> None:
        address = Address(f"b{node_id}", PORT)
        async with runtime.deadline(ADMIN_SECONDS_MAX), Wire.to_address(address) as wire:
            await work(wire)

    try:
        await cluster.network.host("admin").run(there())
    except _LOST:
        return False
    return True


async def reassign(cluster: Cluster) -> None:
    """Name the brokers that should lead a partition, or none, and sometimes elect them at once."""
    from simulation.cluster_network import TOPIC

    chance = runtime.chance()
    partition = chance.randrange(cluster.plan.partitions)
    nodes = chance.sample(
        range(1, cluster.plan.brokers + 1), chance.randint(1, cluster.plan.brokers)
    )
    alter = ALTER_PARTITION_REASSIGNMENTS.Request
    part = alter.Partition(partition_index=partition, replicas=chance.choice([nodes, None]))
    elect = ELECT_LEADERS.Request
    wanted = chance.choice([None, [elect.Topic(topic=TOPIC, partitions=[partition])]])

    async def change(wire: Wire) -> None:
        body = alter(topics=[alter.Topic(name=TOPIC, partitions=[part])])
        await wire.ask(ALTER_PARTITION_REASSIGNMENTS, 1, body)
        if chance.random() < 0.5:
            await wire.ask(ELECT_LEADERS, 2, elect(topic_partitions=wanted))

    await _ask(cluster, change)


async def delete_a_topic(cluster: Cluster) -> None:
    """Create a topic, write to it so that it is tiered, and delete it while that goes on.

    A broker may be paused meanwhile: it does not learn of the deletion, and its work stays undone.
    """
    chance = runtime.chance()
    name = f"{DOOMED}-{cluster.report.events['delete a topic']}"
    create, delete = CREATE_TOPICS.Request, DELETE_TOPICS.Request
    topic = create.Topic(name=name, num_partitions=DOOMED_PARTITIONS, replication_factor=1)

    async def begin(wire: Wire) -> None:
        await wire.ask(CREATE_TOPICS, 5, create(topics=[topic]))

    async def write(wire: Wire) -> None:
        for partition in range(DOOMED_PARTITIONS):
            records = [Record(at, runtime.now_ms(), None, b"v" * 2_000) for at in range(3)]
            await wire.produce(name, bytes(build_batch(records)), partition=partition)

    async def end(wire: Wire) -> None:
        await wire.ask(DELETE_TOPICS, 3, delete(topic_names=[name]))

    await _ask(cluster, begin)
    for _ in range(3):
        await _ask(cluster, write)
    await runtime.sleep(chance.uniform(0.0, 3.0))
    host = cluster.network.host(f"b{chance.randint(1, cluster.plan.brokers)}")
    if chance.random() < 0.5:
        host.pause()
    await _ask(cluster, end)
    await runtime.sleep(chance.uniform(0.0, 5.0))
    host.resume()


def watch_purges(cluster: Cluster, broker: Broker) -> None:
    """Check whenever this broker is about to record that a topic is purged."""
    broker.node.cluster.purged = partial(  # type: ignore[method-assign]
        _purged, cluster, broker, broker.node.cluster.purged
    )


async def _purged(
    cluster: Cluster, broker: Broker, purged: Callable[[str], Awaitable[None]], topic_id: str
) -> None:
    live = {key for key, row in broker.node.cluster.state.brokers.items() if row.live}
    for other in cluster.running.values():
        node = other.node
        writes = node.led.may_write(topic_id) or node.takeover.is_taking(topic_id)
        if node.incarnation in live and node.ended is None and writes:
            cluster.fail(
                ViolationError(f"{topic_id} is purged while {node.incarnation} may write to it")
            )
    cluster.note("purged")
    await purged(topic_id)


async def delete_the_rest(cluster: Cluster) -> None:
    """Delete the topics that were created and not deleted."""
    log = ClusterLog(cluster.raw)
    names = [topic.name for topic in (await log.refresh()).topics.values()]
    for name in names:
        if name.startswith(DOOMED):
            with contextlib.suppress(NeveError):
                await log.delete_topic(name)
