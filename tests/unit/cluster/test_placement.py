"""Placement: which process should lead which partition, from states of the cluster alone."""

from __future__ import annotations

from neve.cluster.placement import (
    moves_from,
    moves_to,
    partitions_to_lead,
    processes_to_expire,
    replaced_processes,
    should_lead,
)
from neve.cluster.records import Move
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionState, Topic

A, B = "a" * 32, "b" * 32
OWN, OTHER, DEAD = 7, 3, 5


def broker(incarnation: int, *, live: bool = True) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=incarnation, incarnation=incarnation, session="s", inflight=4, at_ms=1, live=live
    )


def topic(topic_id: str, *leaders: int) -> Topic:
    """A topic whose partitions have these leaders, under epochs 0, 1 and so on."""
    partitions = tuple(PartitionState(leader=leader, epoch=at) for at, leader in enumerate(leaders))
    return Topic(name=topic_id[0], topic_id=topic_id, at_ms=1, partitions=partitions)


def cluster(*topics: Topic) -> ClusterState:
    brokers = {
        row.incarnation: row for row in (broker(OWN), broker(OTHER), broker(DEAD, live=False))
    }
    return ClusterState(brokers=brokers, topics={row.topic_id: row for row in topics})


def move(topic_id: str, partition: int, epoch: int, incarnation: int) -> Move:
    return Move(topic_id=topic_id, partition=partition, epoch=epoch, incarnation=incarnation)


def test_a_starting_process_expires_every_other_live_one_the_earliest_first() -> None:
    assert [row.incarnation for row in processes_to_expire(cluster(), OWN)] == [OTHER]
    brokers = {at: broker(at) for at in (9, OWN, 2)}
    found = processes_to_expire(ClusterState(brokers=brokers), OWN)
    assert [row.incarnation for row in found] == [2, 9]


def test_a_running_process_replaces_only_those_that_registered_before_it() -> None:
    brokers = {at: broker(at) for at in (9, OWN, 2)}
    found = replaced_processes(ClusterState(brokers=brokers), OWN)
    assert [row.incarnation for row in found] == [2]


def test_a_process_should_lead_what_it_leads_and_what_has_no_leader() -> None:
    for leader, expected in ((OWN, True), (NO_LEADER, True), (OTHER, False)):
        assert should_lead(PartitionState(leader=leader, epoch=0), OWN) is expected


def test_what_a_process_serves_already_is_not_to_be_led_again() -> None:
    state = cluster(topic(A, OWN, OWN, OTHER, NO_LEADER), topic(B, NO_LEADER))
    served = {(bytes.fromhex(A), 0)}
    assert partitions_to_lead(state, OWN, served) == [(A, 1), (A, 3), (B, 0)]
    assert partitions_to_lead(state, OWN, served, [state.topics[B]]) == [(B, 0)]
    assert partitions_to_lead(state, OWN, served, []) == []


def test_what_ended_processes_lead_moves_to_their_successor_under_the_next_epoch() -> None:
    state = cluster(topic(A, OTHER, OWN, DEAD), topic(B, NO_LEADER, OTHER))
    assert moves_from(state, {OTHER, DEAD}, OWN) == (
        move(A, 0, 1, OWN),
        move(A, 2, 3, OWN),
        move(B, 1, 2, OWN),
    )
    assert moves_from(state, set(), OWN) == ()


def test_only_partitions_that_exist_and_have_no_leader_can_be_taken() -> None:
    state = cluster(topic(A, OTHER, OWN, NO_LEADER))
    wanted = [(A, 0), (A, 1), (A, 2), (A, 3), (B, 0)]
    assert moves_to(state, wanted, OWN) == (move(A, 2, 3, OWN),)
