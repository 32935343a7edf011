"""The cluster log folds to the same state from any checkpoint as from all of its numbers."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from neve.cluster.fold import ClusterRules
from neve.cluster.records import (
    AddPartitions,
    Change,
    ClusterRecord,
    CreateTopic,
    DeleteTopic,
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
    SetPreferred,
    Tiered,
    TieredPart,
)
from neve.cluster.state import NO_LEADER, ClusterState

# Few of everything, so that records meet each other.
topic_ids = st.sampled_from(["a" * 32, "b" * 32])
names = st.sampled_from(["t", "u"])
small = st.integers(0, 3)
epochs = st.integers(-1, 4)
incarnations = st.integers(0, 12)
configs = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)

moves = st.builds(
    Move, topic_id=topic_ids, partition=small, epoch=epochs, incarnation=incarnations, start=small
)
handovers = st.builds(
    Handover,
    topic_id=topic_ids,
    partition=small,
    epoch=epochs,
    end=small,
    end_offset=small,
    successor=incarnations,
)
node_lists = st.lists(small, max_size=2).map(tuple)
nodes_by_partition = st.dictionaries(small, node_lists, max_size=2)
preferences = st.builds(Preference, topic_ids, small, node_lists)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Init, st.just("cluster"), st.just(1), small),
    st.builds(
        Register,
        node_id=small,
        session=st.text("s", max_size=2),
        inflight=small,
        at_ms=small,
        moves=st.lists(moves, max_size=3).map(tuple),
    ),
    st.builds(Expire, incarnation=incarnations, moves=st.lists(moves, max_size=3).map(tuple)),
    st.builds(
        CreateTopic,
        name=names,
        topic_id=topic_ids,
        partitions=small,
        at_ms=small,
        configs=configs,
        preferred=nodes_by_partition,
    ),
    st.builds(AddPartitions, topic_ids, small, st.just(()), nodes_by_partition),
    st.builds(SetPreferred, st.lists(preferences, max_size=3).map(tuple)),
    st.just(Rebalance()),
    st.builds(ForgetNode, small),
    st.builds(SetConfigs, topic_ids, configs, st.tuples(st.sampled_from("xy"))),
    st.builds(SetBrokerConfigs, small, configs, st.tuples(st.sampled_from("xy"))),
    st.builds(DeleteTopic, topic_ids),
    st.builds(Dropped, incarnations, st.lists(topic_ids, max_size=2).map(tuple)),
    st.builds(PurgeTopic, topic_ids),
    st.builds(Lead, st.lists(moves, max_size=3).map(tuple)),
    st.builds(Release, st.lists(handovers, max_size=3).map(tuple)),
    st.builds(
        Tiered, st.lists(st.builds(TieredPart, topic_ids, small, epochs), max_size=2).map(tuple)
    ),
    st.builds(ProducerIds, incarnations, small),
    st.builds(Feature, small),
)
logs = st.lists(changes, max_size=30)


def fold(state: ClusterState, changes: list[Change], number: int = 0) -> ClusterState:
    for at, change in enumerate(changes, number):
        state = ClusterRules().fold(state, at, ClusterRecord(change))
    return state


@given(logs, st.data())
def test_a_checkpoint_is_as_good_as_the_numbers_below_it(
    log: list[Change], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(log)))
    stored = msgspec.json.encode(fold(ClusterState(), log[:at]))
    restored = msgspec.json.decode(stored, type=ClusterState)
    resumed = fold(restored, log[at:], at)
    whole = fold(ClusterState(), log)
    assert resumed == whole
    # To the byte: whoever writes the next checkpoint writes the same one.
    assert msgspec.json.encode(resumed) == msgspec.json.encode(whole)


@given(logs)
def test_a_record_survives_its_bytes(log: list[Change]) -> None:
    for change in log:
        record = ClusterRecord(change)
        assert msgspec.json.decode(msgspec.json.encode(record), type=ClusterRecord) == record


def _check_leaders(before: ClusterState, state: ClusterState) -> None:
    """A leader is live, or there is none; a live leader loses a partition only by its own hand."""
    live = {key for key, row in state.brokers.items() if row.live}
    for topic_id, topic in state.topics.items():
        earlier = before.topics[topic_id].partitions if topic_id in before.topics else ()
        for number, partition in enumerate(topic.partitions):
            assert partition.leader == NO_LEADER or partition.leader in live
            if number < len(earlier) and partition.epoch != earlier[number].epoch:
                released = partition.streams[-2:-1]
                had_leader = earlier[number].leader in live
                assert not had_leader or (released and released[0].end is not None)


@given(logs)
def test_the_state_never_contradicts_itself(log: list[Change]) -> None:
    state = ClusterState()
    ids_given: list[tuple[int, int]] = []
    for at, change in enumerate(log):
        before, state = state, fold(state, [change], at)
        assert state.next_producer_id >= before.next_producer_id
        if isinstance(change, ProducerIds):
            ids_given.append((before.next_producer_id, state.next_producer_id))
        assert state.feature_level >= before.feature_level
        _check_leaders(before, state)
    assert not set(state.topics) & set(state.deleted)
    live = [topic.name for topic in state.topics.values()]
    assert len(live) == len(set(live))
    for topic in state.topics.values():
        for partition in topic.partitions:
            found = [part.epoch for part in partition.streams]
            assert found == sorted(set(found))
            # The part of the last leader is always the last one, and open.
            if partition.epoch >= 0:
                last = partition.streams[-1]
                assert last.epoch == partition.epoch
                assert partition.leader in (last.incarnation, NO_LEADER)
                assert last.end is None
            else:
                assert partition.streams == ()
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ids_given))
