"""The brokers of the cluster, and the leaders of its partitions.

A partition is in the bucket, not on brokers. Its replicas are the brokers that serve reads of it:
its leader, then the followers of the leader's stream. Followers are in sync unless the leader has
recorded that they lag. For a partition without a leader, the last leader is shown as an offline
replica. Everything is derived from the cluster log, so that every broker names the same brokers,
leaders, replicas and controller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from neve.cluster.state import NO_LEADER
from neve.serving.logs import event

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.cluster.state import BrokerRegistration, ClusterState, Topic
    from neve.serving.addresses import Address

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1


class BrokerAddress(NamedTuple):
    """A broker, and the address at which its clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    """The broker that leads a partition now, and the epoch in which it does."""

    broker: BrokerAddress
    epoch: int


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
        self._indexed: ClusterState | None = None
        self._by_incarnation: dict[int, BrokerAddress] = {}  # of the state `_indexed`

    @property
    def cluster_id(self) -> str:
        return self._node.cluster.state.cluster_id

    @property
    def controller_id(self) -> int:
        """The live broker with the smallest node id, or -1 if no live broker has an address.

        Clients send changes of the cluster to it, and every broker must name the same one. Any
        broker can do what Kafka's controller does.
        """
        nodes = (each.node_id for each in self._reachable().values())
        return min(nodes, default=NO_CONTROLLER)

    def live_brokers(self) -> list[BrokerAddress]:
        """Return every broker that is alive and has an address, by node id."""
        return sorted(self._reachable().values())

    def fenced_brokers(self) -> list[BrokerAddress]:
        """Return the brokers that have ended and were not started again, by node id.

        The cluster log remembers a process as long as its stream may hold untiered records.
        """
        registered = self._node.cluster.state.brokers
        live = {each.node_id for each in registered.values() if each.live}
        latest: dict[int, BrokerAddress] = {}
        for _, each in sorted(registered.items()):
            address = self._address(each)
            if each.node_id not in live and address is not None and not each.forgotten:
                latest[each.node_id] = address
        return sorted(latest.values())

    async def forget(self, node_id: int) -> None:
        """Forget a broker that has ended. Raises NoNodeError or NodeIsLiveError."""
        await self._node.cluster.forget_node(node_id)
        event(_log, logging.INFO, "broker removed", node=node_id)

    def _reachable(self) -> dict[int, BrokerAddress]:
        """Return the live brokers that have an address, by incarnation: built once per state."""
        state = self._node.cluster.state
        if state is not self._indexed:
            found = {key: self._address(each) for key, each in state.brokers.items() if each.live}
            self._by_incarnation = {key: each for key, each in found.items() if each is not None}
            self._indexed = state
        return self._by_incarnation

    def _address(self, registered: BrokerRegistration) -> BrokerAddress | None:
        own = registered.incarnation == self._node.incarnation
        host, port = self._advertised if own else (registered.host, registered.port)
        if not port:  # a job that writes without serving clients registers too
            return None
        return BrokerAddress(registered.node_id, host, port, registered.rack or None)

    # -- leaders -----------------------------------------------------------------------------

    def current_leader(self, topic: Topic, number: int) -> CurrentLeader | None:
        """Return the leader of a partition as the cluster log has it.

        Returns None if clients find the partition nowhere: no process leads it, its leader has no
        address, this broker is still taking it over, or the partition does not exist.
        """
        if not 0 <= number < len(topic.partitions):
            return None
        broker = self._leader(topic, number)
        return None if broker is None else CurrentLeader(broker, topic.partitions[number].epoch)

    def _leader(self, topic: Topic, number: int) -> BrokerAddress | None:
        leader = topic.partitions[number].leader
        is_own = leader == self._node.incarnation
        if is_own and self._node.leader_of(topic.id_bytes, number) is None:
            return None
        return self._reachable().get(leader)

    def find_leader(self, name: str, topic_id: bytes | None, number: int) -> CurrentLeader | None:
        """Return the current leader of a partition of a topic with this id, or else this name.

        Returns None also if there is no such topic.
        """
        state = self._node.cluster.state
        topic = state.topic(name) if topic_id is None else state.topic_by_id(topic_id)
        return None if topic is None else self.current_leader(topic, number)

    def partitions(self, topic: Topic, numbers: Iterable[int]) -> list[PartitionView]:
        """Return the leader and the replicas of these partitions of a topic."""
        return [self._partition(topic, number) for number in numbers]

    def _partition(self, topic: Topic, number: int) -> PartitionView:
        partition = topic.partitions[number]
        leader = self._leader(topic, number)
        if leader is not None:
            sets, state = self._node.replication.sets, self._node.cluster.state
            replicas = [leader.node_id, *self._nodes(sets.of(state, partition.leader))]
            in_sync = [leader.node_id, *self._nodes(sets.in_sync(state, partition.leader))]
            return PartitionView(number, leader.node_id, partition.epoch, replicas, in_sync, [])
        # Without a leader, the last process that wrote: its part of the streams is the last one.
        last = partition.streams[-1].incarnation if partition.streams else partition.leader
        owner = self._node.cluster.state.brokers.get(last)
        node_id = self.controller_id if owner is None else owner.node_id
        return PartitionView(number, NO_LEADER, partition.epoch, [node_id], [], [node_id])

    def _nodes(self, incarnations: Iterable[int]) -> list[int]:
        brokers = self._node.cluster.state.brokers
        return [brokers[each].node_id for each in incarnations]

    async def new_producer_id(self) -> int:
        """Return an id that no idempotent producer of this cluster has had."""
        return await self._node.producer_ids.next()


class NamedLeaders:
    """The leaders that one response names for partitions which it refuses (KIP-951).

    Clients then go on there without asking for metadata. `by_id` is whether topics are given by id.
    """

    def __init__(self, cluster: ClusterAdmin, *, by_id: bool) -> None:
        self._cluster = cluster
        self._by_id = by_id
        self._brokers: dict[int, BrokerAddress] = {}

    def find(self, name: str, topic_id: bytes, number: int) -> CurrentLeader | None:
        """Return the current leader of a partition, or None, and note the leader's address."""
        leader = self._cluster.find_leader(name, topic_id if self._by_id else None, number)
        if leader is not None:
            self._brokers[leader.broker.node_id] = leader.broker
        return leader

    @property
    def brokers(self) -> list[BrokerAddress]:
        """The leaders found so far, each once."""
        return list(self._brokers.values())
