"""Which process leads which partition next: the moves that records of the cluster log carry.

Everything here is pure. `ClusterLog` proposes these moves, and `Takeover` recovers the partitions
that were won. `neve.cluster.balance` chooses the leaders.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from neve.cluster.balance import Candidate, candidates, spread
from neve.cluster.followers import followers_of
from neve.cluster.preferred import first_leader
from neve.cluster.records import Move
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionKey, Topic
from neve.log.wal.reader import PartitionId

# From this feature level on, several brokers share the partitions of a bucket.
SHARING_LEVEL = 2

_NO_NODES: Mapping[int, Sequence[int]] = MappingProxyType({})


def processes_to_expire(state: ClusterState, incarnation: int) -> list[BrokerRegistration]:
    """The processes that a starting process declares dead: those of versions that share nothing.

    Such a process leads everything, answers no other broker, and expects to be replaced. Returns
    them by incarnation, the earliest first.
    """
    return sorted(
        (
            row
            for row in state.brokers.values()
            if row.live and row.level < SHARING_LEVEL and row.incarnation != incarnation
        ),
        key=lambda row: row.incarnation,
    )


def partitions_to_lead(
    state: ClusterState,
    incarnation: int,
    served: Container[PartitionId],
    topics: Iterable[Topic] | None = None,
) -> list[PartitionKey]:
    """Partitions that a process should lead and does not serve yet: of these topics, or of all.

    It should lead what the cluster log gives it, and its share of the partitions without a leader.
    """
    found: list[PartitionKey] = []
    unled: list[PartitionKey] = []
    for topic in state.topics.values() if topics is None else topics:
        for number, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER:
                unled.append((topic.topic_id, number))
            elif partition.leader == incarnation and (topic.id_bytes, number) not in served:
                found.append((topic.topic_id, number))
    if unled:
        leaders = _leaders_of(state, unled)
        found += [row for row in unled if leaders.get(row) == incarnation]
    return found


def leaders_of_new(
    state: ClusterState,
    topic_id: str,
    numbers: Iterable[int],
    preferred: Mapping[int, Sequence[int]] = _NO_NODES,
) -> tuple[int, ...]:
    """Return the leaders of partitions that are about to be created; none before SHARING_LEVEL.

    `preferred` has the nodes that should lead a partition, by its number.
    """
    if state.feature_level < SHARING_LEVEL:
        return ()
    wanted = [(topic_id, number) for number in numbers]
    by_node = {row.node_id: row.incarnation for row in _leader_candidates(state)}
    chosen: dict[PartitionKey, int] = {}
    for row in wanted:
        leader = first_leader(preferred.get(row[1], ()), by_node)
        if leader is not None:
            chosen[row] = leader
    leaders = {**_leaders_of(state, [row for row in wanted if row not in chosen]), **chosen}
    return tuple(leaders[row] for row in wanted if row in leaders)


def moves_from(
    state: ClusterState, ended: Collection[int], *, followers: int = 0
) -> tuple[Move, ...]:
    """Return moves to live processes, for every partition that the ended processes lead.

    With `followers`, the number of them that each stream has, partitions move only to those that
    follow such a stream, if there are any: they have its tail in memory.
    """
    orphans = _led_by(state, ended)
    warm = {each for key in ended for each in followers_of(state, key, followers)}
    leaders = _leaders_of(state, orphans, ended, warm)
    return tuple(_move(state, row, leaders[row]) for row in orphans if row in leaders)


def moves_to_one(state: ClusterState, ended: Collection[int], successor: int) -> tuple[Move, ...]:
    """Return moves to one successor, for every partition that the ended processes lead."""
    return tuple(_move(state, row, successor) for row in _led_by(state, ended))


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
            moves.append(_move(state, (topic_id, number), incarnation))
    return tuple(moves)


def is_janitor(state: ClusterState, incarnation: int) -> bool:
    """Whether this process does the housekeeping of the whole bucket.

    The oldest live broker does. A process without an address is a job, which does it only where
    there is no broker.
    """
    live = [row for row in state.brokers.values() if row.live]
    brokers = [row for row in live if row.port] or live
    return min((row.incarnation for row in brokers), default=None) == incarnation


def _leaders_of(
    state: ClusterState,
    partitions: Iterable[PartitionKey],
    ended: Collection[int] = (),
    warm: Collection[int] = (),
) -> Mapping[PartitionKey, int]:
    """Choose a leader for each of these partitions; none if no process is live."""
    return spread(state, partitions, _leader_candidates(state, ended, warm))


def _leader_candidates(
    state: ClusterState, ended: Collection[int] = (), warm: Collection[int] = ()
) -> list[Candidate]:
    """Return the processes that may get partitions, without those that are about to end.

    Only `warm` processes are chosen if any of them can be. Where every live node is draining,
    its brokers lead all the same: no other could.
    """
    among = [row for row in candidates(state) if row.incarnation not in ended]
    among = [row for row in among if row.incarnation in warm] or among
    if among:
        return among
    live = (row for row in state.brokers.values() if row.live and row.incarnation not in ended)
    return sorted(
        (Candidate(row.incarnation, row.node_id, row.rack) for row in live),
        key=lambda row: row.node_id,
    )


def _led_by(state: ClusterState, processes: Collection[int]) -> list[PartitionKey]:
    return [
        (topic.topic_id, number)
        for topic in state.topics.values()
        for number, partition in enumerate(topic.partitions)
        if partition.leader in processes
    ]


def _move(state: ClusterState, row: PartitionKey, successor: int) -> Move:
    topic_id, number = row
    epoch = state.topics[topic_id].partitions[number].epoch + 1
    return Move(topic_id=topic_id, partition=number, epoch=epoch, incarnation=successor)
