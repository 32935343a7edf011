"""Placement: which process should lead which partition, from states of the cluster alone."""

from __future__ import annotations

from collections import Counter

import msgspec

from neve.cluster.followers import followers_of
from neve.cluster.placement import (
    is_janitor,
    leaders_of_new,
    moves_from,
    moves_to,
    moves_to_one,
    partitions_to_lead,
    processes_to_expire,
)
from neve.cluster.records import Move
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionState, Topic

A, B = "a" * 32, "b" * 32
OWN, OTHER, DEAD = 7, 3, 5


def broker(incarnation: int, *, live: bool = True, level: int = 2) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=incarnation,
        incarnation=incarnation,
        session="s",
        inflight=4,
        at_ms=1,
        live=live,
        level=level,
    )


def topic(topic_id: str, *leaders: int) -> Topic:
    """A topic whose partitions have these leaders, under epochs 0, 1 and so on."""
    partitions = tuple(PartitionState(leader=leader, epoch=at) for at, leader in enumerate(leaders))
    return Topic(name=topic_id[0], topic_id=topic_id, at_ms=1, partitions=partitions)


def cluster(*topics: Topic) -> ClusterState:
    brokers = {
        row.incarnation: row for row in (broker(OWN), broker(OTHER), broker(DEAD, live=False))
    }
    topics_by_id = {row.topic_id: row for row in topics}
    return ClusterState(brokers=brokers, topics=topics_by_id, feature_level=2)


def move(topic_id: str, partition: int, epoch: int, incarnation: int) -> Move:
    return Move(topic_id=topic_id, partition=partition, epoch=epoch, incarnation=incarnation)


def test_a_starting_process_expires_those_that_share_nothing_the_earliest_first() -> None:
    brokers = {at: broker(at, level=1) for at in (9, OWN, 2)}
    brokers[4] = broker(4)
    brokers[5] = broker(5, live=False, level=1)
    found = processes_to_expire(ClusterState(brokers=brokers), OWN)
    assert [row.incarnation for row in found] == [2, 9]


def test_what_a_process_serves_already_is_not_to_be_led_again() -> None:
    state = cluster(topic(A, OWN, OWN, OTHER))
    assert partitions_to_lead(state, OWN, {(bytes.fromhex(A), 0)}) == [(A, 1)]
    assert partitions_to_lead(state, OWN, set(), []) == []


def test_partitions_without_a_leader_are_shared() -> None:
    state = cluster(topic(A, OTHER, NO_LEADER), topic(B, NO_LEADER, NO_LEADER, OWN))
    shares = {at: partitions_to_lead(state, at, set()) for at in (OWN, OTHER)}
    unled = [row for at in shares for row in shares[at] if _leader(state, row) == NO_LEADER]
    assert sorted(unled) == [(A, 1), (B, 0), (B, 1)]
    assert sorted(map(len, shares.values())) == [2, 3]
    assert partitions_to_lead(state, DEAD, set()) == []


def _leader(state: ClusterState, row: tuple[str, int]) -> int:
    return state.topics[row[0]].partitions[row[1]].leader


def test_what_ended_processes_lead_moves_to_live_ones_under_the_next_epoch() -> None:
    state = cluster(topic(A, OTHER, OWN, OTHER), topic(B, NO_LEADER, OTHER))
    assert moves_from(state, {OTHER}) == (
        move(A, 0, 1, OWN),
        move(A, 2, 3, OWN),
        move(B, 1, 2, OWN),
    )
    assert moves_from(state, set()) == ()
    assert moves_from(state, {OTHER, OWN}) == (), "nobody is left"


def test_a_process_that_is_started_again_gets_all_that_its_node_led() -> None:
    state = cluster(topic(A, OTHER, OWN, OTHER))
    assert moves_to_one(state, {OTHER}, 11) == (move(A, 0, 1, 11), move(A, 2, 3, 11))


def test_brokers_of_draining_nodes_lead_only_if_there_is_no_other() -> None:
    state = msgspec.structs.replace(cluster(topic(A, OTHER)), draining=(OWN,))
    assert leaders_of_new(state, B, range(3)) == (OTHER, OTHER, OTHER)
    assert moves_from(state, {OTHER}) == (move(A, 0, 1, OWN),)


def test_before_brokers_share_nothing_is_placed() -> None:
    state = msgspec.structs.replace(cluster(), feature_level=1)
    assert leaders_of_new(state, A, range(3)) == ()


def test_the_oldest_live_process_does_the_housekeeping() -> None:
    assert [is_janitor(cluster(), at) for at in (OTHER, DEAD, OWN)] == [True, False, False]


def test_a_job_without_an_address_does_the_housekeeping_only_without_brokers() -> None:
    def with_ports(ports: dict[int, int]) -> ClusterState:
        rows = {at: msgspec.structs.replace(broker(at), port=port) for at, port in ports.items()}
        return ClusterState(brokers=rows, feature_level=2)

    beside_brokers = with_ports({1: 0, 2: 9092, 3: 9092})
    assert [is_janitor(beside_brokers, at) for at in (1, 2, 3)] == [False, True, False]
    assert [is_janitor(with_ports({1: 0, 2: 0}), at) for at in (1, 2)] == [True, False]


def test_only_partitions_that_exist_and_have_no_leader_can_be_taken() -> None:
    state = cluster(topic(A, OTHER, OWN, NO_LEADER))
    wanted = [(A, 0), (A, 1), (A, 2), (A, 3), (B, 0)]
    assert moves_to(state, wanted, OWN) == (move(A, 2, 3, OWN),)


def test_what_a_dead_process_led_moves_to_those_that_follow_it() -> None:
    brokers = {at: msgspec.structs.replace(broker(at), port=9092) for at in range(1, 9)}
    rows = [topic(name, *[1] * 8) for name in (A, B)]
    state = ClusterState(brokers=brokers, topics={row.topic_id: row for row in rows})
    warm = followers_of(state, 1, 3)
    moved = Counter(row.incarnation for row in moves_from(state, {1}, followers=3))
    assert sorted(moved) == sorted(warm)
    assert sorted(moved.values()) == [5, 5, 6]
    everywhere = {row.incarnation for row in moves_from(state, {1})}
    assert len(everywhere) > len(warm), "a planned move spreads over all"
    alone = msgspec.structs.replace(
        state, brokers={key: msgspec.structs.replace(row, port=0) for key, row in brokers.items()}
    )
    assert len(moves_from(alone, {1}, followers=3)) == 16, "nobody follows: anyone leads"
