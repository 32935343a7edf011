"""The changes of the cluster log that say where partitions should be led, and by which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neve.cluster.log_view import ClusterLogView
from neve.cluster.preferred import check_preferred, nodes_of
from neve.cluster.records import (
    Change,
    ForgetNode,
    Preference,
    Rebalance,
    SetDraining,
    SetPreferred,
)
from neve.cluster.state import ClusterState, PartitionKey, Topic
from neve.cluster.topic_rules import NoTopicError
from neve.errors import InvalidError


class NoNodeError(InvalidError):
    """No node of the cluster has this id."""


class NodeIsLiveError(InvalidError):
    """A process of the node is live, so it cannot be removed from the cluster."""


class PlacementChanges(ClusterLogView):
    """Changes that operators and admin clients make to placement."""

    async def set_draining(self, node_id: int, *, draining: bool) -> None:
        """Set whether brokers of a node should lead no partitions."""

        def derive(state: ClusterState) -> Change | None:
            if (node_id in state.draining) == draining:
                return None
            return SetDraining(node_id=node_id, draining=draining)

        await self.propose(derive)

    async def forget_node(self, node_id: int) -> None:
        """Forget a node that has ended and does not come back, with all that was set for it.

        Raises NoNodeError or NodeIsLiveError.
        """
        proposed: list[int] = []

        def derive(state: ClusterState) -> Change | None:
            rows = [row for row in state.brokers.values() if row.node_id == node_id]
            if any(row.live for row in rows):
                raise NodeIsLiveError(
                    f"broker {node_id} is live and cannot be removed: stop it first"
                )
            if any(not row.forgotten for row in rows) or _is_set_for(state, node_id):
                proposed.append(node_id)
                return ForgetNode(node_id)
            if proposed:  # done by us, though the answer was lost, or by another process
                return None
            known = ", ".join(map(str, nodes_of(state))) or "none"
            raise NoNodeError(f"broker {node_id} is not in this cluster; its brokers: {known}")

        await self.propose(derive)

    async def rebalance(self) -> None:
        """Let every broker pull at once what it should lead."""
        before: list[int] = []

        def derive(state: ClusterState) -> Change | None:
            before.append(state.rebalances)
            return Rebalance() if state.rebalances == before[0] else None

        await self.propose(derive)

    async def set_preferred(
        self, wanted: Mapping[PartitionKey, Sequence[int]]
    ) -> dict[PartitionKey, InvalidError]:
        """Set the nodes that should lead partitions, in order; none: placement decides.

        Returns the error of each partition that cannot have them. The others are set.
        """
        refused: dict[PartitionKey, InvalidError] = {}

        def derive(state: ClusterState) -> Change | None:
            refused.clear()
            rows: list[Preference] = []
            for key, nodes in wanted.items():
                try:
                    topic = _with_partition(state, key)
                    if nodes:
                        check_preferred(state, topic.name, nodes)
                except InvalidError as error:
                    refused[key] = error
                    continue
                if topic.preferred.get(key[1], ()) != tuple(nodes):
                    rows.append(Preference(*key, tuple(nodes)))
            return SetPreferred(tuple(rows)) if rows else None

        await self.propose(derive)
        return refused


def _is_set_for(state: ClusterState, node_id: int) -> bool:
    """Whether draining, configs or preferred leaders are set for a node."""
    if node_id in state.draining or node_id in state.broker_configs:
        return True
    topics = state.topics.values()
    return any(node_id in nodes for topic in topics for nodes in topic.preferred.values())


def _with_partition(state: ClusterState, key: PartitionKey) -> Topic:
    """Return the topic of a partition. Raises NoTopicError."""
    topic_id, number = key
    topic = state.topics.get(topic_id)
    if topic is None:
        raise NoTopicError(f"there is no topic with the id {topic_id}")
    if not 0 <= number < len(topic.partitions):
        raise NoTopicError(f"partition {number} does not exist in topic {topic.name!r}")
    return topic
