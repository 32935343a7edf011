"""Elections: let the brokers that should lead partitions take them now.

There is no vote. Placement says which broker should lead a partition, and that broker pulls it by
itself sooner or later. An election asks it to do so at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.errors import (
    ElectionNotNeededError,
    EligibleLeadersUnavailableError,
    PreferredLeaderUnavailableError,
)
from neve.cluster.balance import candidates, target_leaders
from neve.cluster.state import NO_LEADER
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.broker.admin.reassignments import NamedPartition
    from neve.broker.admin.topics import TopicAdmin
    from neve.cluster.membership import Membership
    from neve.cluster.node import Node
    from neve.cluster.state import PartitionKey, Topic


class ElectionAdmin:
    """Elections of leaders in a node's cluster."""

    def __init__(self, node: Node, topics: TopicAdmin, membership: Membership) -> None:
        self._node = node
        self._topics = topics
        self._membership = membership

    def all(self) -> list[NamedPartition]:
        """Return every partition of every topic."""
        topics = self._topics.all()
        return [(topic.name, number) for topic in topics for number in range(len(topic.partitions))]

    async def elect(
        self, wanted: Collection[NamedPartition], seconds: float, *, only_unled: bool
    ) -> dict[NamedPartition, NeveError | None]:
        """Let the broker that should lead each of these partitions take it over.

        With `only_unled`, only partitions without a leader. Returns the error of each partition,
        None if it is led by that broker now.
        """
        state = self._node.cluster.state
        targets = state.once(target_leaders)
        by_node = {row.node_id: row.incarnation for row in candidates(state)}
        outcomes: dict[NamedPartition, NeveError | None] = {}
        asked: dict[int, dict[PartitionKey, NamedPartition]] = {}
        for name, number in wanted:
            try:
                topic = self._topics.find_partition(name, number)
                key = topic.topic_id, number
                target = targets.get(key, NO_LEADER)
                if only_unled:
                    _check_unled(topic, number, target)
                else:
                    _check_preferred(topic, number, target, by_node)
            except NeveError as error:
                outcomes[name, number] = error
            else:
                asked.setdefault(target, {})[key] = (name, number)
        failures = await runtime.gather(
            *(self._membership.let_pull(at, list(rows), seconds) for at, rows in asked.items())
        )
        if asked:
            await self._node.cluster.refresh()
        for (target, rows), failure in zip(asked.items(), failures, strict=True):
            for key, named in rows.items():
                outcomes[named] = self._outcome(key, target, failure)
        return outcomes

    def _outcome(
        self, key: PartitionKey, target: int, failure: NeveError | None
    ) -> NeveError | None:
        topic = self._node.cluster.state.topics.get(key[0])
        if topic is not None and topic.partitions[key[1]].leader == target:
            return None
        reason = failure or "it has not taken the partition over"
        return PreferredLeaderUnavailableError(f"the broker that should lead it: {reason}")


def _check_unled(topic: Topic, number: int, target: int) -> None:
    if topic.partitions[number].leader != NO_LEADER:
        raise ElectionNotNeededError("the partition has a leader")
    if target == NO_LEADER:
        raise EligibleLeadersUnavailableError("no broker can lead the partition")


def _check_preferred(topic: Topic, number: int, target: int, by_node: Mapping[int, int]) -> None:
    nodes = topic.preferred.get(number)
    if nodes and nodes[0] not in by_node:
        raise PreferredLeaderUnavailableError(
            f"broker {nodes[0]}, which should lead the partition, has ended or is draining"
        )
    if target == NO_LEADER:
        raise PreferredLeaderUnavailableError("no broker can lead the partition")
    if topic.partitions[number].leader == target:
        raise ElectionNotNeededError("the broker that should lead the partition leads it")
