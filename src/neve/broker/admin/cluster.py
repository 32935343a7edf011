"""The brokers of the cluster, and the leaders of its partitions.

A partition is in the bucket, not on brokers: its leader is its only replica, and in sync. For a
partition without a leader, the last leader is shown as an offline replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from neve.cluster.state import NO_LEADER

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.cluster.state import Topic
    from neve.serving.addresses import Address


class BrokerAddress(NamedTuple):
    """A broker, and the address at which its clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """One partition as metadata shows it. Responses have fields of the same names."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]

    @property
    def is_led(self) -> bool:
        return self.leader_id != NO_LEADER


class ClusterAdmin:
    """The cluster as a node knows it. Clients reach this broker at `advertised`."""

    def __init__(self, node: Node, advertised: Address) -> None:
        self._node = node
        self._advertised = advertised

    @property
    def cluster_id(self) -> str:
        return self._node.cluster.state.cluster_id

    @property
    def controller_id(self) -> int:
        """The node id of this broker: any broker can do what Kafka's controller does."""
        return self._node.node_id

    def live_brokers(self) -> list[BrokerAddress]:
        """Return every broker that is alive and has an address, by node id."""
        found = []
        for each in self._node.cluster.state.brokers.values():
            own = each.incarnation == self._node.incarnation
            host, port = self._advertised if own else (each.host, each.port)
            # A job that writes without serving clients registers too, and has no address.
            if each.live and port:
                found.append(BrokerAddress(each.node_id, host, port, each.rack or None))
        return sorted(found)

    def coordinator_address(self, incarnation: int | None) -> BrokerAddress:
        """Return the broker that clients of a coordinator connect to.

        `incarnation` leads the coordinator's partition. If no process does (None), or one that
        serves no clients, clients connect to this broker. It responds with NOT_COORDINATOR, and
        they ask again.
        """
        found = None if incarnation is None else self._node.cluster.state.brokers.get(incarnation)
        if found is None or found.incarnation == self._node.incarnation or not found.port:
            return BrokerAddress(self._node.node_id, *self._advertised, None)
        return BrokerAddress(found.node_id, found.host, found.port, found.rack or None)

    def partitions(self, topic: Topic, numbers: Iterable[int]) -> list[PartitionView]:
        """Return the leader and the replicas of these partitions of a topic."""
        return [self._partition(topic, number) for number in numbers]

    def _partition(self, topic: Topic, number: int) -> PartitionView:
        partition = topic.partitions[number]
        # Without a leader, the last process that wrote: its part of the streams is the last one.
        last = partition.streams[-1].incarnation if partition.streams else partition.leader
        owner = self._node.cluster.state.brokers.get(last)
        node_id = self._node.node_id if owner is None else owner.node_id
        if partition.leader == self._node.incarnation:
            led = self._node.leader_of(topic.id_bytes, number) is not None
        else:
            led = partition.leader != NO_LEADER
        if led:
            at = [node_id]
            return PartitionView(number, node_id, partition.epoch, at, at, [])
        return PartitionView(number, NO_LEADER, partition.epoch, [node_id], [], [node_id])

    async def new_producer_id(self) -> int:
        """Return an id that no idempotent producer of this cluster has had."""
        return await self._node.producer_ids.next()
