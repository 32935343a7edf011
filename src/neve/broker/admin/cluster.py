"""The brokers of the cluster, and the leaders of its partitions.

A partition is in the bucket, not on brokers: its leader is its only replica, and in sync. A
partition without a leader names its last one, as an offline replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from neve.cluster.state import NO_LEADER

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic


class BrokerAddress(NamedTuple):
    """A live broker, as its clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """One partition as metadata shows it, by the names that its fields have in every answer."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]

    @property
    def is_led(self) -> bool:
        return self.leader_id != NO_LEADER


def live_brokers(broker: Broker) -> list[BrokerAddress]:
    """Every broker that is alive and has an address, by node id."""
    found = []
    for other in broker.node.cluster.state.brokers.values():
        own = other.incarnation == broker.node.incarnation
        host, port = broker.advertised if own else (other.host, other.port)
        # A job that writes without serving clients registers too, and has no address.
        if other.live and port:
            found.append(BrokerAddress(other.node_id, host, port, other.rack or None))
    return sorted(found)


def view_partitions(broker: Broker, topic: Topic, numbers: Iterable[int]) -> list[PartitionView]:
    """Show these partitions of a topic."""
    return [_view(broker, topic, number) for number in numbers]


def _view(broker: Broker, topic: Topic, number: int) -> PartitionView:
    partition = topic.partitions[number]
    # Without a leader, the last process that wrote to it: its part of the streams is the last one.
    last = partition.streams[-1].incarnation if partition.streams else partition.leader
    owner = broker.node.cluster.state.brokers.get(last)
    node_id = broker.node_id if owner is None else owner.node_id
    if partition.leader == broker.node.incarnation:
        led = broker.node.leader_of(topic.id_bytes, number) is not None
    else:
        led = partition.leader != NO_LEADER
    if led:
        at = [node_id]
        return PartitionView(number, node_id, partition.epoch, at, at, [])
    return PartitionView(number, NO_LEADER, partition.epoch, [node_id], [], [node_id])
