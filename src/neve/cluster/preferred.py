"""Preferred nodes: those that should lead a partition, where an operator or a client chose them.

A partition with preferred nodes belongs to the first of them that can lead: one that is live and
does not drain. If none can, placement decides as for any other partition. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neve.cluster.state import ClusterState, PartitionKey
from neve.cluster.topic_rules import AssignmentError


def nodes_of(state: ClusterState) -> list[int]:
    """Return the ids of the nodes that have registered and were not forgotten, in order."""
    return sorted({row.node_id for row in state.brokers.values() if not row.forgotten})


def check_preferred(state: ClusterState, name: str, nodes: Sequence[int]) -> None:
    """Raise AssignmentError if these nodes cannot be preferred for a partition of a topic."""
    if not nodes:
        raise AssignmentError(f"an assignment of topic {name!r} names no broker")
    if len(set(nodes)) < len(nodes):
        raise AssignmentError(f"an assignment of topic {name!r} names a broker twice: {nodes}")
    known = nodes_of(state)
    unknown = sorted(set(nodes).difference(known))
    if unknown:
        raise AssignmentError(
            f"an assignment of topic {name!r} names broker {unknown[0]}, which is not in this "
            f"cluster; its brokers: {', '.join(map(str, known)) or 'none'}"
        )


def first_leader(nodes: Iterable[int], by_node: Mapping[int, int]) -> int | None:
    """Return the incarnation of the first of these nodes that is in `by_node`, or None."""
    return next((by_node[each] for each in nodes if each in by_node), None)


def preferred_leaders(state: ClusterState, by_node: Mapping[int, int]) -> dict[PartitionKey, int]:
    """Return the leader of each partition with a preferred node that can lead.

    `by_node` has the incarnations of the processes that can lead, by node id.
    """
    found: dict[PartitionKey, int] = {}
    for topic_id, topic in state.topics.items():
        for number, nodes in topic.preferred.items():
            leader = first_leader(nodes, by_node)
            if leader is not None:
                found[topic_id, number] = leader
    return found
