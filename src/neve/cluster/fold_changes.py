"""Changes of topics and partitions in a state of the cluster, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from neve.cluster.state import ClusterState, PartitionState, Topic


def changed_topic(
    state: ClusterState, topic_id: str, change: Callable[[Topic], Topic]
) -> ClusterState:
    """Change a topic, if it exists."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return state
    return msgspec.structs.replace(state, topics={**state.topics, topic_id: change(topic)})


class _OfPartition(Protocol):
    """A row of a record that is about one partition."""

    @property
    def topic_id(self) -> str: ...
    @property
    def partition(self) -> int: ...


_Row = TypeVar("_Row", bound=_OfPartition)


def changed_partitions(
    state: ClusterState,
    rows: Iterable[_Row],
    change: Callable[[PartitionState, _Row], PartitionState],
) -> ClusterState:
    """Change one partition for each row, in their order. Each topic is rebuilt once."""
    changed: dict[str, list[PartitionState]] = {}
    for row in rows:
        topic = state.topics.get(row.topic_id)
        if topic is None or not 0 <= row.partition < len(topic.partitions):
            continue
        partitions = changed.get(row.topic_id)
        if partitions is None:
            partitions = changed[row.topic_id] = list(topic.partitions)
        partitions[row.partition] = change(partitions[row.partition], row)
    topics = dict(state.topics)
    for topic_id, partitions in changed.items():
        topics[topic_id] = msgspec.structs.replace(topics[topic_id], partitions=tuple(partitions))
    return msgspec.structs.replace(state, topics=topics)
