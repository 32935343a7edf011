"""Preferred nodes: who should lead a partition where an operator or a client has decided that."""

from __future__ import annotations

import msgspec
import pytest

from neve.cluster.balance import candidates, spread, target_leaders
from neve.cluster.fold import ClusterRules
from neve.cluster.log import NodeIsLiveError, NoNodeError, NoTopicError
from neve.cluster.node import Node
from neve.cluster.placement import leaders_of_new
from neve.cluster.preferred import check_preferred
from neve.cluster.records import (
    AddPartitions,
    Change,
    ClusterRecord,
    CreateTopic,
    ForgetNode,
    Preference,
    Rebalance,
    SetPreferred,
    level_of,
)
from neve.cluster.state import NO_LEADER, BrokerRegistration, ClusterState, PartitionState, Topic
from neve.cluster.topic_rules import AssignmentError
from neve.store.memory import MemoryStore
from support.node_world import small_settings

A = "a" * 32
SETTINGS = small_settings()


def broker(node_id: int, *, live: bool = True, forgotten: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=node_id,
        incarnation=10 * node_id,
        session="s",
        inflight=4,
        at_ms=1,
        port=9092,
        live=live,
        forgotten=forgotten,
    )


def cluster(
    *brokers: BrokerRegistration,
    leaders: tuple[int, ...] = (),
    preferred: dict[int, tuple[int, ...]] | None = None,
    draining: tuple[int, ...] = (),
) -> ClusterState:
    """A topic whose partitions are led by these nodes; 0: by none."""
    partitions = tuple(PartitionState(leader=10 * at or NO_LEADER) for at in leaders)
    topic = Topic(
        name="a", topic_id=A, at_ms=1, partitions=partitions, preferred=dict(preferred or {})
    )
    return ClusterState(
        brokers={row.incarnation: row for row in brokers},
        topics={A: topic},
        draining=draining,
        feature_level=2,
    )


def folded(state: ClusterState, *changes: Change) -> ClusterState:
    for number, change in enumerate(changes, 1000):
        state = ClusterRules().fold(state, number, ClusterRecord(change))
    return state


def target(state: ClusterState) -> list[int]:
    found = target_leaders(state)
    return [found[A, number] // 10 for number in range(len(state.topics[A].partitions))]


# --- placement


def test_the_first_preferred_node_that_is_live_and_not_draining_leads() -> None:
    three = (broker(1), broker(2), broker(3))
    preferred = {0: (3, 2), 1: (2,)}
    assert target(cluster(*three, leaders=(1, 1, 1), preferred=preferred))[:2] == [3, 2]
    drained = cluster(*three, leaders=(1, 1, 1), preferred=preferred, draining=(3,))
    assert target(drained)[:2] == [2, 2]
    ended = (broker(1), broker(2), broker(3, live=False))
    assert target(cluster(*ended, leaders=(1, 1, 1), preferred=preferred))[:2] == [2, 2]


def test_without_a_preferred_node_that_can_lead_placement_decides_as_usual() -> None:
    brokers = (broker(1), broker(2), broker(3, live=False))
    plain = cluster(*brokers, leaders=(1, 2, 1))
    assert target(cluster(*brokers, leaders=(1, 2, 1), preferred={1: (3,)})) == target(plain)


def test_the_others_are_balanced_as_if_preferred_ones_did_not_exist() -> None:
    state = cluster(
        broker(1), broker(2), leaders=(1, 1, 1, 1, 1, 1), preferred={0: (1,), 1: (1,), 2: (1,)}
    )
    found = target(state)
    assert found[:3] == [1, 1, 1]
    assert sorted(found[3:]) in ([1, 1, 2], [1, 2, 2])
    assert sum(leader != 1 for leader in found) == 1, "as few as possible move"


def test_partitions_that_lose_their_leader_go_to_their_preferred_nodes() -> None:
    state = cluster(broker(1), broker(2), leaders=(0, 0, 1, 1), preferred={0: (1,), 1: (2, 1)})
    found = spread(state, [(A, 0), (A, 1)], candidates(state))
    assert found == {(A, 0): 10, (A, 1): 20}


def test_new_partitions_are_led_by_their_preferred_nodes() -> None:
    state = cluster(broker(1), broker(2), draining=(2,))
    assert leaders_of_new(state, "b" * 32, range(3), {0: (2, 1), 2: (1,)}) == (10, 10, 10)
    state = cluster(broker(1), broker(2))
    found = leaders_of_new(state, "b" * 32, range(3), {0: (2,), 2: (2,)})
    assert (found[0], found[2]) == (20, 20)


# --- the fold


def test_preferred_nodes_are_set_replaced_and_removed() -> None:
    state = cluster(broker(1), leaders=(1, 1))
    state = folded(state, SetPreferred((Preference(A, 0, (1, 2)), Preference(A, 1, (2,)))))
    assert state.topics[A].preferred == {0: (1, 2), 1: (2,)}
    state = folded(state, SetPreferred((Preference(A, 0, ()), Preference(A, 1, (1,)))))
    assert state.topics[A].preferred == {1: (1,)}
    nowhere = (Preference("b" * 32, 0, (1,)), Preference(A, 7, (1,)), Preference(A, -1, (1,)))
    assert folded(state, SetPreferred(nowhere)) == state


def test_a_topic_is_created_and_grows_with_preferred_nodes() -> None:
    create = CreateTopic(
        name="b", topic_id="b" * 32, partitions=2, at_ms=1, preferred={1: (2,), 5: (1,)}
    )
    grow = AddPartitions("b" * 32, 3, (), {1: (9,), 2: (1,)})
    state = folded(cluster(broker(1)), create, grow)
    assert state.topics["b" * 32].preferred == {1: (2,), 2: (1,)}


def test_a_node_that_is_forgotten_is_named_nowhere_and_its_streams_are_kept() -> None:
    state = cluster(
        broker(1), broker(2, live=False), leaders=(1, 1, 1), preferred={0: (2, 1), 1: (2,)}
    )
    state = msgspec.structs.replace(state, draining=(2,), broker_configs={2: {"k": "v"}, 1: {}})
    state = folded(state, ForgetNode(2))
    assert state.topics[A].preferred == {0: (1,)}
    assert (state.draining, state.broker_configs) == ((), {1: {}})
    assert state.brokers[20].forgotten
    assert folded(state, ForgetNode(1)) == state, "it is live"


def test_each_rebalance_counts() -> None:
    assert folded(cluster(), Rebalance(), Rebalance()).rebalances == 2


@pytest.mark.parametrize(
    "change",
    [
        SetPreferred(()),
        Rebalance(),
        ForgetNode(1),
        CreateTopic(name="t", topic_id=A, partitions=1, at_ms=1, preferred={0: (1,)}),
        AddPartitions(A, 1, (), {0: (1,)}),
    ],
)
def test_they_are_written_from_level_two_on(change: Change) -> None:
    assert level_of(change) == 2


# --- proposing


@pytest.mark.parametrize("nodes", [(), (1, 1), (7,), (1, 7), (3,), (-1,)])
def test_an_assignment_names_brokers_of_the_cluster_each_once(nodes: tuple[int, ...]) -> None:
    state = cluster(broker(1), broker(2, live=False), broker(3, live=False, forgotten=True))
    check_preferred(state, "t", (2, 1))
    with pytest.raises(AssignmentError):
        check_preferred(state, "t", nodes)


async def test_one_record_sets_all_partitions_and_refuses_some() -> None:
    node = await Node.start(MemoryStore(), SETTINGS, node_id=1, probe=False)
    await node.takeover.lead()
    topic = await node.topics.create("t", 3)
    before = node.cluster.view.position
    keys = [(topic.topic_id, number) for number in (0, 1, 2, 3)]
    refused = await node.cluster.set_preferred(
        {keys[0]: (1,), keys[1]: (1,), keys[2]: (9,), keys[3]: (1,), ("f" * 32, 0): (1,)}
    )
    assert {key: type(error) for key, error in refused.items()} == {
        keys[2]: AssignmentError,
        keys[3]: NoTopicError,
        ("f" * 32, 0): NoTopicError,
    }
    assert node.cluster.view.position == before + 1
    assert node.cluster.state.topics[topic.topic_id].preferred == {0: (1,), 1: (1,)}
    assert await node.cluster.set_preferred({keys[0]: (1,)}) == {}
    assert node.cluster.view.position == before + 1, "nothing has changed"
    await node.abort()


async def test_only_a_node_that_has_ended_is_forgotten() -> None:
    store = MemoryStore()
    one = await Node.start(store, SETTINGS, node_id=1, probe=False)
    await one.takeover.lead()
    two = await Node.start(store, SETTINGS, node_id=2, probe=False)
    with pytest.raises(NodeIsLiveError, match="broker 2 is live"):
        await one.cluster.forget_node(2)
    with pytest.raises(NoNodeError, match="its brokers: 1, 2"):
        await one.cluster.forget_node(3)
    await one.cluster.set_draining(2, draining=True)
    await two.close()
    await one.cluster.forget_node(2)
    assert one.cluster.state.draining == ()
    with pytest.raises(NoNodeError):
        await one.cluster.forget_node(2)
    again = await Node.start(store, SETTINGS, node_id=2, probe=False)
    assert 2 in {row.node_id for row in again.cluster.state.brokers.values() if not row.forgotten}
    await again.abort()
    await one.abort()
