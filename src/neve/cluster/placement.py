"""Placement: which process should lead which partition, decided from the cluster's state alone.

Everything here is pure. `ClusterLog` proposes the moves that these functions return, and `Takeover`
recovers the partitions that were won.

This module is the one place that assumes a single broker per bucket, in three functions:
`processes_to_expire`, `replaced_processes` and `should_lead`. All other code serves the
partitions that its process leads and refuses the others.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from neve.cluster.records import Move
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionState, Topic
from neve.log.wal.reader import PartitionId

# A topic's id in hex, and a partition number.
PartitionKey = tuple[str, int]


def processes_to_expire(state: ClusterState, incarnation: int) -> list[BrokerRegistration]:
    """The processes that a starting process declares dead: every other one that is live.

    A bucket has one broker, so another live process has crashed or is about to be replaced.
    Returns them by incarnation, the earliest first.
    """
    others = [row for row in state.brokers.values() if row.live and row.incarnation != incarnation]
    return sorted(others, key=lambda row: row.incarnation)


def replaced_processes(state: ClusterState, incarnation: int) -> list[BrokerRegistration]:
    """Return those of `processes_to_expire` that registered before this process.

    One that registered later replaces this process.
    """
    others = processes_to_expire(state, incarnation)
    return [row for row in others if row.incarnation < incarnation]


def should_lead(partition: PartitionState, incarnation: int) -> bool:
    """Whether a live process should lead a partition: it leads it already, or no process does.

    A bucket has one broker, so there is no other process to leave the partition to.
    """
    return partition.leader in (incarnation, NO_LEADER)


def partitions_to_lead(
    state: ClusterState,
    incarnation: int,
    served: Container[PartitionId],
    topics: Iterable[Topic] | None = None,
) -> list[PartitionKey]:
    """Partitions that a process should lead and does not serve yet: of these topics, or of all."""
    return [
        (topic.topic_id, number)
        for topic in (state.topics.values() if topics is None else topics)
        for number, partition in enumerate(topic.partitions)
        if should_lead(partition, incarnation) and (topic.id_bytes, number) not in served
    ]


def moves_from(state: ClusterState, ended: Collection[int], successor: int) -> tuple[Move, ...]:
    """Return moves to a successor, for every partition that the ended processes lead."""
    return tuple(
        _move(topic, number, successor)
        for topic in state.topics.values()
        for number, partition in enumerate(topic.partitions)
        if partition.leader in ended
    )


def moves_to(
    state: ClusterState, wanted: Iterable[PartitionKey], incarnation: int
) -> tuple[Move, ...]:
    """Return moves to a process, for those of the wanted partitions that have no leader."""
    moves = []
    for topic_id, number in wanted:
        topic = state.topics.get(topic_id)
        if topic is None or number >= len(topic.partitions):
            continue
        if topic.partitions[number].leader == NO_LEADER:
            moves.append(_move(topic, number, incarnation))
    return tuple(moves)


def _move(topic: Topic, number: int, incarnation: int) -> Move:
    epoch = topic.partitions[number].epoch + 1
    return Move(topic_id=topic.topic_id, partition=number, epoch=epoch, incarnation=incarnation)
