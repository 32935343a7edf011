"""Folding the cluster log: every kind of record, and records that no longer fit."""

from __future__ import annotations

import msgspec
import pytest

from neve.cluster.fold import ClusterRules
from neve.cluster.records import (
    ALL_NODES,
    AbandonWal,
    AddPartitions,
    Change,
    ClusterRecord,
    CreateTopic,
    DeleteTopic,
    Deregister,
    Dropped,
    Expire,
    Feature,
    ForgetNode,
    Handover,
    Init,
    Lead,
    Move,
    Preference,
    ProducerIds,
    PurgeTopic,
    Rebalance,
    Register,
    Release,
    SetBrokerConfigs,
    SetConfigs,
    SetDraining,
    SetLagging,
    SetPreferred,
    Tiered,
    TieredPart,
)
from neve.cluster.state import ClusterState, IdBlock, PartitionState, StreamPart
from neve.log.wal.store_identity import WalStoreRef

A, B = "a" * 32, "b" * 32


def folded(*changes: Change, base: ClusterState | None = None, number: int = 0) -> ClusterState:
    state = ClusterState() if base is None else base
    for at, change in enumerate(changes, number):
        state = ClusterRules().fold(state, at, ClusterRecord(change))
    return state


def register(node_id: int, session: str = "s", moves: tuple[Move, ...] = ()) -> Register:
    return Register(
        node_id=node_id,
        session=session,
        inflight=4,
        at_ms=1,
        host="h",
        port=9,
        rack="r",
        moves=moves,
    )


def alive(*incarnations: int) -> ClusterState:
    """A cluster of these processes, each of a node of its own."""
    state = ClusterState()
    for number in incarnations:
        state = folded(register(number), base=state, number=number)
    return state


def create(topic_id: str = A, name: str = "t", partitions: int = 2) -> CreateTopic:
    return CreateTopic(
        name=name, topic_id=topic_id, partitions=partitions, at_ms=1, configs={"k": "v"}
    )


def move(epoch: int, incarnation: int, topic_id: str = A, partition: int = 0) -> Move:
    return Move(topic_id=topic_id, partition=partition, epoch=epoch, incarnation=incarnation)


def lead(epoch: int, incarnation: int, topic_id: str = A, partition: int = 0) -> Lead:
    return Lead((move(epoch, incarnation, topic_id, partition),))


def expire(incarnation: int, *moves: Move) -> Expire:
    return Expire(incarnation=incarnation, moves=moves)


def release(epoch: int, successor: int, end: int = 5) -> Release:
    row = Handover(
        topic_id=A, partition=0, epoch=epoch, end=end, end_offset=50, successor=successor
    )
    return Release((row,))


def tiered(epoch: int, partition: int = 0, topic_id: str = A) -> Tiered:
    return Tiered((TieredPart(topic_id, partition, epoch),))


def first(state: ClusterState) -> PartitionState:
    return state.topics[A].partitions[0]


# --- what each kind does


def test_init_makes_a_cluster_once() -> None:
    state = folded(Init("one", 1, 0), Init("two", 2, 0))
    assert (state.cluster_id, state.feature_level) == ("one", 1)


def test_a_registration_s_number_is_the_incarnation() -> None:
    state = folded(register(1), number=7)
    broker = state.brokers[7]
    assert (broker.node_id, broker.incarnation, broker.session, broker.live) == (1, 7, "s", True)
    assert (broker.inflight, broker.host, broker.port, broker.rack) == (4, "h", 9, "r")


def test_a_node_that_registers_again_ends_its_earlier_self() -> None:
    state = folded(register(1), register(2), register(1, "again"))
    assert sorted(state.brokers) == [1, 2]
    assert all(broker.live for broker in state.brokers.values())


def test_a_dead_broker_is_remembered_while_its_stream_is_needed() -> None:
    state = folded(create(), register(1), lead(0, 1), register(1, "again", (move(1, 3),)))
    assert (state.brokers[1].live, state.brokers[3].live) == (False, True)
    state = folded(tiered(0), register(5), base=state, number=4)
    assert sorted(state.brokers) == [3, 5]


def test_a_node_that_registers_again_leads_what_its_earlier_self_led() -> None:
    state = folded(create(), lead(0, 4), base=alive(4, 5), number=10)
    state = folded(register(4, "again", (move(1, 20),)), base=state, number=20)
    assert (first(state).leader, first(state).epoch) == (20, 1)
    assert [part.incarnation for part in first(state).streams] == [4, 20]


def test_what_a_process_led_has_no_leader_where_no_row_moves_it() -> None:
    """In every state the leader of a partition is live, or there is none."""
    led = folded(create(), lead(0, 4), base=alive(4, 5), number=10)
    for ends in (expire(4), expire(4, move(7, 5)), expire(4, move(1, 4)), register(4, "again")):
        state = folded(ends, base=led, number=20)
        assert (first(state).leader, first(state).epoch) == (-1, 0)
        assert [part.incarnation for part in first(state).streams] == [4]
        assert first(folded(lead(1, 5), base=state, number=30)).leader == 5


def test_an_expired_process_is_waited_for_by_no_deleted_topic() -> None:
    state = folded(create(), DeleteTopic(A), base=alive(4, 5), number=10)
    assert state.deleted[A].writers == (4, 5)
    assert folded(expire(4), base=state, number=20).deleted[A].writers == (5,)


def test_a_topic_has_partitions_without_leaders() -> None:
    topic = folded(create(partitions=3)).topics[A]
    assert topic.partitions == (PartitionState(),) * 3
    assert (topic.name, topic.configs, topic.id_bytes) == ("t", {"k": "v"}, bytes.fromhex(A))


def test_partitions_are_added_never_taken_away() -> None:
    state = folded(create(), AddPartitions(A, 5), AddPartitions(A, 3))
    assert len(state.topics[A].partitions) == 5


def test_configs_are_set_and_taken_back() -> None:
    state = folded(create(), SetConfigs(A, {"x": "1", "k": "2"}), SetConfigs(A, {}, ("x", "none")))
    assert state.topics[A].configs == {"k": "2"}


def test_a_deleted_topic_is_kept_until_it_is_purged() -> None:
    state = folded(create(), DeleteTopic(A))
    assert state.topics == {}
    assert sorted(state.deleted) == [A]
    assert folded(PurgeTopic(A), base=state).deleted == {}


def test_a_name_is_free_again_once_its_topic_is_deleted() -> None:
    state = folded(create(), DeleteTopic(A), create(B))
    topic = state.topic("t")
    assert topic is not None
    assert topic.topic_id == B


def test_leaderships_pile_up_streams_in_order() -> None:
    partition = first(folded(create(), lead(0, 4), expire(4, move(1, 7)), base=alive(4, 7)))
    assert (partition.leader, partition.epoch) == (7, 1)
    assert partition.streams == (
        StreamPart(epoch=0, incarnation=4),
        StreamPart(epoch=1, incarnation=7),
    )


def test_a_release_ends_the_stream_s_part_and_names_the_successor() -> None:
    partition = first(folded(create(), lead(0, 4), release(0, 9), base=alive(4, 9)))
    assert (partition.leader, partition.epoch) == (9, 1)
    assert partition.streams == (
        StreamPart(epoch=0, incarnation=4, end=5, end_offset=50),
        StreamPart(epoch=1, incarnation=9),
    )


def test_what_is_tiered_is_let_go_but_never_the_leader_s_own_part() -> None:
    moved = (create(), lead(0, 4), expire(4, move(1, 7)), expire(7, move(2, 9)))
    state = folded(*moved, tiered(0), base=alive(4, 7, 9))
    assert [part.incarnation for part in first(state).streams] == [7, 9]
    state = folded(tiered(2), base=state)
    assert [part.incarnation for part in first(state).streams] == [9]
    assert first(state).leader == 9


def test_streams_are_those_that_some_live_topic_needs() -> None:
    leads = (lead(0, 4), lead(0, 9, B), lead(0, 4, B, 1))
    state = folded(create(), create(B, "u"), *leads, base=alive(4, 9))
    assert state.streams() == [4, 9]
    assert folded(DeleteTopic(B), base=state).streams() == [4]


def test_blocks_of_producer_ids_never_overlap() -> None:
    state = folded(
        register(1), register(2), ProducerIds(0, 10), ProducerIds(1, 5), ProducerIds(0, 1)
    )
    assert state.next_producer_id == 16
    assert state.id_blocks == {0: IdBlock(15, 16), 1: IdBlock(10, 15)}


def test_the_feature_level_only_rises() -> None:
    assert folded(Init("c", 1, 0), Feature(3), Feature(2)).feature_level == 3


# --- what no longer fits changes nothing

LED = folded(
    Init("c", 1, 0), create(), lead(0, 4), expire(4, move(1, 7)), base=alive(4, 7, 9), number=10
)


@pytest.mark.parametrize(
    "change",
    [
        Init("other", 9, 0),
        create(B),  # the name is taken
        create(A, "u"),  # the id is
        AddPartitions(B, 9),
        AddPartitions(A, 1),
        SetConfigs(B, {"x": "1"}),
        DeleteTopic(B),
        PurgeTopic(A),
        lead(1, 9),  # another process was first
        lead(2, 9),  # its leader is live
        lead(3, 9),
        lead(0, 4, A, 1),  # the process is over
        lead(0, 50, A, 1),  # it never was
        expire(4, move(2, 9)),
        expire(50, move(2, 9)),
        release(1, 4),
        lead(0, 9, A, 7),
        lead(0, 9, A, -1),
        lead(0, 9, B),
        release(0, 9),
        release(2, 9),
        tiered(5, 9),
        tiered(5, 0, B),
        Feature(0),
    ],
    ids=lambda change: repr(change)[:60],
)
def test_a_record_that_no_longer_fits_changes_nothing(change: Change) -> None:
    assert folded(change, base=LED, number=50) == LED


def test_a_release_of_a_partition_that_nobody_leads_changes_nothing() -> None:
    state = folded(create(), base=alive(9))
    assert folded(release(-1, 9), base=state) == state


def test_the_id_of_a_deleted_topic_is_never_used_again() -> None:
    state = folded(create(), DeleteTopic(A))
    assert folded(create(A, "another"), base=state) == state


def test_of_several_moves_those_that_fit_count() -> None:
    moves = tuple(
        Move(topic_id=A, partition=partition, epoch=epoch, incarnation=9)
        for partition, epoch in ((0, 0), (1, 5))
    )
    state = folded(create(), Lead(moves), base=alive(9))
    assert [row.leader for row in state.topics[A].partitions] == [9, -1]


def test_folding_leaves_the_state_before_it_as_it_was() -> None:
    before = msgspec.json.encode(LED)
    folded(register(1), lead(2, 9), AddPartitions(A, 9), SetConfigs(A, {"k": "n"}), base=LED)
    assert msgspec.json.encode(LED) == before


# --- as a checkpoint


def test_a_state_survives_its_checkpoint() -> None:
    changes = (register(1), register(2), ProducerIds(10, 5), release(1, 9), create(B, "u"))
    state = folded(*changes, DeleteTopic(B), base=LED, number=10)
    assert msgspec.json.decode(msgspec.json.encode(state), type=ClusterState) == state


def test_a_kind_from_the_future_is_refused_and_a_field_ignored() -> None:
    known = msgspec.json.encode(ClusterRecord(DeleteTopic(A)))
    for future in (
        known,
        known.replace(b'"topic_id"', b'"reason":"?","topic_id"'),
        known.replace(b'{"change"', b'{"more":1,"change"'),
    ):
        assert msgspec.json.decode(future, type=ClusterRecord) == ClusterRecord(DeleteTopic(A))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(known.replace(b"delete-topic", b"delete-tenant"), type=ClusterRecord)


def test_configs_of_brokers_are_given_and_taken_back() -> None:
    state = folded(
        SetBrokerConfigs(ALL_NODES, {"x": "1", "y": "2"}),
        SetBrokerConfigs(7, {"x": "3"}),
        SetBrokerConfigs(ALL_NODES, {"y": "4"}, ("x",)),
        SetBrokerConfigs(8, {"x": "5"}),
        SetBrokerConfigs(8, {}, ("x",)),
    )
    assert state.broker_configs == {ALL_NODES: {"y": "4"}, 7: {"x": "3"}}


def test_a_process_that_leaves_keeps_nothing() -> None:
    led = folded(create(), lead(0, 4), base=alive(4, 9))
    left = folded(Deregister(incarnation=4), base=led)
    assert (first(left).leader, first(left).epoch) == (-1, 0)
    assert not left.brokers[4].live, "its stream is still needed"
    move = Move(topic_id=A, partition=0, epoch=1, incarnation=9)
    moved = folded(Deregister(incarnation=4, moves=(move,)), base=led)
    assert (first(moved).leader, first(moved).epoch) == (9, 1)
    assert folded(Deregister(incarnation=4), base=left) == left


def test_the_draining_nodes_are_known_in_order() -> None:
    state = folded(*(SetDraining(node_id=node, draining=True) for node in (3, 1, 2, 1)))
    assert state.draining == (1, 2, 3)
    assert folded(SetDraining(node_id=2, draining=False), base=state).draining == (1, 3)
    assert folded(SetDraining(node_id=7, draining=False), base=state) == state


def test_a_live_process_says_which_of_its_followers_lag() -> None:
    state = folded(SetLagging(incarnation=4, followers=(9, 7, 9)), base=alive(4, 9))
    assert state.lagging == {4: (7, 9)}
    assert folded(SetLagging(incarnation=4, followers=()), base=state).lagging == {}
    assert folded(SetLagging(incarnation=5, followers=(9,)), base=state) == state
    assert folded(expire(4), base=state).lagging == {}
    assert folded(expire(9), base=state).lagging == {4: (7, 9)}


def test_new_partitions_have_the_leaders_that_are_named_and_live() -> None:
    topic = CreateTopic(name="t", topic_id=A, partitions=4, at_ms=1, leaders=(4, 5, 9))
    state = folded(topic, base=alive(4, 9))
    assert [(row.leader, row.epoch) for row in state.topics[A].partitions] == [
        (4, 0),
        (-1, -1),
        (9, 0),
        (-1, -1),
    ]
    assert state.topics[A].partitions[0].streams == (StreamPart(epoch=0, incarnation=4),)
    grown = folded(AddPartitions(A, 6, (9,)), base=state)
    assert [row.leader for row in grown.topics[A].partitions] == [4, -1, 9, -1, 9, -1]
    assert folded(AddPartitions(A, 2, (4,)), base=grown) == grown


def test_every_kind_of_record_can_be_folded() -> None:
    """A kind without its fold would stop every process that reads it."""
    samples: list[Change] = [
        Init("c", 1, 0),
        register(1),
        expire(1),
        Deregister(incarnation=1),
        SetDraining(node_id=1, draining=True),
        SetLagging(incarnation=1, followers=(2,)),
        create(),
        AddPartitions(A, 3),
        SetPreferred((Preference(A, 0, (1,)),)),
        Rebalance(),
        ForgetNode(1),
        SetConfigs(A, {}),
        SetBrokerConfigs(1, {}),
        lead(0, 1),
        release(0, 2),
        tiered(0),
        AbandonWal(store_id="s"),
        ProducerIds(1, 1),
        Feature(1),
        DeleteTopic(A),
        Dropped(1, (A,)),
        PurgeTopic(A),
    ]
    union = msgspec.inspect.type_info(ClusterRecord).fields[0].type.types  # type: ignore[attr-defined]
    assert {type(sample) for sample in samples} == {row.cls for row in union}
    folded(*samples)


def test_streams_of_a_wal_store_are_given_up_with_their_processes() -> None:
    ref = WalStoreRef(name="a", url="", store_id="s")
    state = folded(msgspec.structs.replace(register(1), wal_store=ref), base=alive(4, 9))
    (own,) = state.wal_stores()
    state = folded(
        CreateTopic(name="t", topic_id=A, partitions=3, at_ms=1, leaders=(own, 4, own)),
        base=state,
    )
    moves = (Move(topic_id=A, partition=0, epoch=1, incarnation=9),)
    other = folded(AbandonWal(store_id="other", moves=moves), base=state)
    assert other == state
    after = folded(AbandonWal(store_id="s", moves=moves), base=state)
    assert own not in after.brokers
    assert after.abandoned_stores == 1
    rows = after.topics[A].partitions
    assert [(row.leader, row.epoch) for row in rows] == [(9, 1), (4, 0), (-1, 0)]
    assert [[part.incarnation for part in row.streams] for row in rows] == [[9], [4], []]
