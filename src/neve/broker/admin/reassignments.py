"""Reassignments: which brokers should lead partitions, as clients have chosen.

The store replicates, so the brokers of an assignment are those that should lead, in their order. A
reassignment is in progress as long as another broker leads than the first of them that can.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve.broker.errors import NoReassignmentError
from neve.cluster.balance import candidates
from neve.cluster.preferred import check_preferred, first_leader
from neve.errors import NeveError
from neve.serving.logs import event

if TYPE_CHECKING:
    from neve.broker.admin.topics import TopicAdmin
    from neve.cluster.node import Node
    from neve.cluster.state import PartitionKey, Topic

_log = logging.getLogger(__name__)

NamedPartition: TypeAlias = tuple[str, int]
"""A topic's name, and a partition number."""


class Reassignment(NamedTuple):
    """A partition that is not yet led where it should be. Responses have the same fields."""

    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class ReassignmentAdmin:
    """The reassignments of a node's cluster."""

    def __init__(self, node: Node, topics: TopicAdmin) -> None:
        self._node = node
        self._topics = topics

    async def alter(
        self, wanted: Mapping[NamedPartition, Sequence[int] | None]
    ) -> dict[NamedPartition, NeveError]:
        """Set the brokers that should lead partitions, or end that with None.

        Returns the error of each partition that was not changed.
        """
        failures: dict[NamedPartition, NeveError] = {}
        keys: dict[PartitionKey, NamedPartition] = {}
        changes: dict[PartitionKey, Sequence[int]] = {}
        for named, nodes in wanted.items():
            try:
                key = self._checked(named, nodes)
            except NeveError as error:
                failures[named] = error
            else:
                keys[key] = named
                changes[key] = () if nodes is None else nodes
        if changes:
            refused = await self._node.cluster.set_preferred(changes)
            failures |= {keys[key]: error for key, error in refused.items()}
            changed = len(changes) - len(refused)
            event(_log, logging.INFO, "partitions reassigned", partitions=changed)
        return failures

    def _checked(self, named: NamedPartition, nodes: Sequence[int] | None) -> PartitionKey:
        """Return the key of a partition whose assignment may be changed."""
        name, number = named
        topic = self._topics.find_partition(name, number)
        if nodes is None and number not in topic.preferred:
            raise NoReassignmentError(f"partition {number} of topic {name!r} is not reassigned")
        if nodes is not None:
            check_preferred(self._node.cluster.state, name, nodes)
        return topic.topic_id, number

    def in_progress(
        self, wanted: Mapping[str, Collection[int]] | None = None
    ) -> dict[str, list[Reassignment]]:
        """Return the reassignments in progress of these partitions, or of all, by topic."""
        found: dict[str, list[Reassignment]] = {}
        for topic in self._topics.all():
            if topic.preferred and (wanted is None or topic.name in wanted):
                rows = self._of_topic(topic, None if wanted is None else wanted[topic.name])
                if rows:
                    found[topic.name] = rows
        return found

    def _of_topic(self, topic: Topic, numbers: Collection[int] | None) -> list[Reassignment]:
        state = self._node.cluster.state
        by_node = {row.node_id: row.incarnation for row in candidates(state)}
        rows: list[Reassignment] = []
        for number, nodes in topic.preferred.items():
            leader = topic.partitions[number].leader
            wanted = first_leader(nodes, by_node)
            if wanted == leader or (numbers is not None and number not in numbers):
                continue
            current = [state.brokers[leader].node_id] if leader in state.brokers else []
            target = next((each for each in nodes if each in by_node), nodes[0])
            removing = [each for each in current if each not in nodes]
            rows.append(Reassignment(number, [*nodes, *removing], [target], removing))
        return rows
