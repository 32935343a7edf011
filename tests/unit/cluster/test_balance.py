"""Balance, in examples: which processes are candidates, how topics are spread, what is given up."""

from __future__ import annotations

from collections import Counter

from neve.cluster.balance import Candidate, candidates, spread, target_leaders
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionState, Topic

A, B = "a" * 32, "b" * 32


def broker(
    node_id: int, rack: str = "", *, port: int = 9092, live: bool = True
) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=node_id,
        incarnation=10 * node_id,
        session="s",
        inflight=4,
        at_ms=1,
        port=port,
        rack=rack,
        live=live,
    )


def cluster(*brokers: BrokerRegistration, **topics: tuple[int, ...]) -> ClusterState:
    """A state with topics `a` and `b`, whose partitions are led by these nodes; 0: by none."""
    rows = {
        name * 32: Topic(
            name=name,
            topic_id=name * 32,
            at_ms=1,
            partitions=tuple(PartitionState(leader=10 * at or NO_LEADER) for at in nodes),
        )
        for name, nodes in topics.items()
    }
    return ClusterState(brokers={row.incarnation: row for row in brokers}, topics=rows)


def spread_nodes(state: ClusterState, topic_id: str, count: int) -> list[int]:
    """The nodes that get these new partitions."""
    keys = [(topic_id, number) for number in range(count)]
    found = spread(state, keys, candidates(state))
    return [found[key] // 10 for key in keys]


def target_nodes(state: ClusterState) -> dict[str, list[int]]:
    """The nodes that should lead each topic."""
    nodes: dict[str, list[int]] = {}
    for (topic_id, _), leader in target_leaders(state).items():
        nodes.setdefault(topic_id, []).append(leader // 10)
    return nodes


def test_candidates_are_live_and_do_not_drain() -> None:
    state = cluster(broker(5, "a"), broker(3), broker(2, live=False), broker(1, "b"))
    assert candidates(state) == (Candidate(10, 1, "b"), Candidate(30, 3, ""), Candidate(50, 5, "a"))
    drained = ClusterState(brokers=state.brokers, draining=(3, 5))
    assert candidates(drained) == (Candidate(10, 1, "b"),)


def test_a_topic_alternates_between_racks_and_uses_every_broker() -> None:
    state = cluster(*(broker(at, rack) for at, rack in enumerate("aaabbb", 1)))
    assert spread_nodes(state, A, 8) == [1, 4, 2, 5, 3, 6, 1, 4]


def test_of_brokers_that_lead_equally_many_one_in_the_rack_with_the_fewest_comes_first() -> None:
    brokers = [broker(at, rack) for at, rack in enumerate("aabb", 1)]
    found = spread(cluster(*brokers), [(A, 0), (B, 0)], candidates(cluster(*brokers)))
    assert found == {(A, 0): 10, (B, 0): 30}


def test_partitions_that_lose_their_leader_do_not_count_for_it() -> None:
    state = cluster(broker(1), broker(2), a=(1, 1, 2))
    found = spread(state, [(A, 0), (A, 1)], candidates(state))
    assert found == {(A, 0): 10, (A, 1): 10}


def test_leaders_that_are_no_candidates_count_for_their_racks() -> None:
    state = cluster(broker(1, "a"), broker(2, "b"), broker(3, "a"), a=(3, 3, 0))
    among = [row for row in candidates(state) if row.node_id != 3]
    assert spread(state, [(A, 2)], among) == {(A, 2): 20}


def test_counts_that_differ_by_one_still_do_whatever_the_racks_lead() -> None:
    state = cluster(broker(1, "b"), broker(2, "a"), a=(2, 2), b=(1, 0))
    assert spread(state, [(B, 1)], candidates(state)) == {(B, 1): 10}
    state = cluster(broker(1, "b"), broker(2, "c"), broker(3, "c"), a=(2, 2, 0), b=(1,))
    assert spread(state, [(A, 2)], candidates(state)) == {(A, 2): 30}


def test_a_broker_that_has_just_joined_does_not_get_all_of_a_new_topic() -> None:
    state = cluster(broker(1), broker(2), broker(3), a=(1, 1, 1, 1, 1, 2, 2, 2, 2, 2))
    assert spread_nodes(state, B, 3) == [3, 1, 2]


def test_of_equal_racks_one_with_a_broker_without_the_topic_comes_first() -> None:
    brokers = [broker(at, rack) for at, rack in enumerate("aabb", 1)]
    state = cluster(*brokers, a=(1, 2, 3, 3, 0), b=(4, 4, 0, 0, 0))
    found = spread(state, [(A, 4), (B, 2), (B, 3), (B, 4)], candidates(state))
    assert found[A, 4] == 40


def test_a_broker_gives_up_what_its_rack_has_too_much_of() -> None:
    brokers = [broker(at, rack) for at, rack in enumerate("aabb", 1)]
    assert target_nodes(cluster(*brokers, a=(1, 3), b=(1, 2))) == {A: [1, 3], B: [4, 2]}
    assert target_nodes(cluster(*brokers, a=(1, 2), b=(1, 3))) == {A: [4, 2], B: [1, 3]}


def test_a_broker_gives_up_what_it_has_too_much_of_itself() -> None:
    brokers = [broker(at) for at in (1, 2, 3)]
    assert target_nodes(cluster(*brokers, a=(1, 2), b=(1, 1))) == {A: [1, 2], B: [1, 3]}
    assert target_nodes(cluster(*brokers, a=(1, 1), b=(1, 2))) == {A: [1, 3], B: [1, 2]}


def test_a_broker_that_joins_gets_partitions_of_different_topics() -> None:
    brokers = [broker(at, rack) for at, rack in enumerate("abc", 1)]
    found = target_nodes(cluster(*brokers, a=(1, 1, 2, 2), b=(1, 1, 2, 2)))
    assert {topic_id: nodes.count(3) for topic_id, nodes in found.items()} == {A: 1, B: 1}


def test_a_broker_that_joins_gets_its_share_of_each_topic() -> None:
    found = target_nodes(cluster(broker(1), broker(2), a=(1, 1, 1, 1), b=(1, 1)))
    assert {topic_id: nodes.count(2) for topic_id, nodes in found.items()} == {A: 2, B: 1}


def test_brokers_that_keep_one_more_are_in_different_racks() -> None:
    brokers = [broker(at, rack) for at, rack in enumerate("aabbcc", 1)]
    found = target_nodes(cluster(*brokers, a=(1, 2, 3, 4), b=(1, 2, 3, 4)))
    assert Counter(found[A] + found[B]) == {1: 2, 2: 1, 3: 2, 4: 1, 5: 1, 6: 1}
