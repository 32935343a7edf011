"""Leaders are balanced over brokers and racks, and no partition moves that does not have to."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from neve.cluster.balance import Candidate, candidates, spread, target_leaders
from neve.cluster.state import (
    NO_LEADER,
    BrokerRegistration,
    ClusterState,
    PartitionKey,
    PartitionState,
    Topic,
)

Leaders = Mapping[PartitionKey, int]

_with = msgspec.structs.replace


def broker(node_id: int, rack: str, *, port: int = 9092) -> BrokerRegistration:
    """A live broker; the order of incarnations is not that of node ids."""
    return BrokerRegistration(
        node_id=node_id,
        incarnation=1000 - node_id,
        session="s",
        inflight=4,
        at_ms=1,
        port=port,
        rack=rack,
    )


def topic(at: int, leaders: Sequence[int]) -> Topic:
    """A topic whose id comes after those of later ones."""
    partitions = tuple(PartitionState(leader=leader) for leader in leaders)
    return Topic(name=f"t{at}", topic_id=f"{999 - at:032x}", at_ms=1, partitions=partitions)


def cluster(
    brokers: Iterable[BrokerRegistration],
    topics: Iterable[Topic] = (),
    draining: Iterable[int] = (),
) -> ClusterState:
    return ClusterState(
        brokers={row.incarnation: row for row in brokers},
        topics={row.topic_id: row for row in topics},
        draining=tuple(sorted(draining)),
    )


def led(state: ClusterState, leaders: Leaders) -> ClusterState:
    """The state after these partitions got these leaders."""
    topics = {}
    for topic_id, row in state.topics.items():
        partitions = tuple(
            _with(partition, leader=leaders.get((topic_id, number), partition.leader))
            for number, partition in enumerate(row.partitions)
        )
        topics[topic_id] = _with(row, partitions=partitions)
    return _with(state, topics=topics)


def leaders_of(state: ClusterState) -> dict[PartitionKey, int]:
    return {
        (topic_id, number): partition.leader
        for topic_id, row in state.topics.items()
        for number, partition in enumerate(row.partitions)
    }


def moves(state: ClusterState) -> dict[PartitionKey, int]:
    """The partitions that do not have the leader that they should have, and that one."""
    before = leaders_of(state)
    return {key: leader for key, leader in target_leaders(state).items() if leader != before[key]}


def joined(state: ClusterState, row: BrokerRegistration) -> ClusterState:
    return _with(state, brokers={**state.brokers, row.incarnation: row})


def without(state: ClusterState, gone: Candidate, how: str) -> ClusterState:
    """The state after a candidate has drained, or has ended and left its partitions."""
    if how == "drained":
        return _with(state, draining=(gone.node_id,))
    ended = _with(state.brokers[gone.incarnation], live=False)
    orphans = {key for key, leader in leaders_of(state).items() if leader == gone.incarnation}
    return led(joined(state, ended), dict.fromkeys(orphans, NO_LEADER))


def counts(state: ClusterState) -> list[int]:
    """How many partitions each candidate leads."""
    found = Counter(leaders_of(state).values())
    return [found[row.incarnation] for row in candidates(state)]


def in_racks(state: ClusterState, leaders: Iterable[int]) -> list[int]:
    """How many of these leaders each rack of candidates has."""
    found = Counter(state.brokers[leader].rack for leader in leaders)
    return [found[rack] for rack in sorted({row.rack for row in candidates(state)})]


sizes = st.lists(st.integers(1, 9), max_size=8)
racks = st.sampled_from(["", "a", "b", "c"])


@st.composite
def clusters(draw: st.DrawFn, least: int = 1) -> ClusterState:
    """Any state with a candidate: some brokers drain or serve no client, and leaders are anyhow."""
    rows = [broker(at, rack) for at, rack in enumerate(draw(st.lists(racks, min_size=least)))]
    rows += [broker(at, rack, port=0) for at, rack in enumerate(draw(st.lists(racks)), 100)]
    drained = [broker(at, rack) for at, rack in enumerate(draw(st.lists(racks, max_size=3)), 200)]
    live = [NO_LEADER, *(row.incarnation for row in [*rows, *drained])]
    # Some leaders are more likely than others, so that there is something to move.
    leaders = st.sampled_from(draw(st.lists(st.sampled_from(live), min_size=1)))
    topics = [
        topic(at, draw(st.lists(leaders, min_size=size, max_size=size)))
        for at, size in enumerate(draw(sizes))
    ]
    return cluster([*rows, *drained], topics, [row.node_id for row in drained])


@st.composite
def equal_racks(draw: st.DrawFn) -> ClusterState:
    """Racks with equally many brokers each, in any order of node ids, and no topic."""
    names = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    rows = draw(st.permutations(names * draw(st.integers(1, 4))))
    return cluster(broker(at, rack) for at, rack in enumerate(rows))


def balanced(state: ClusterState) -> ClusterState:
    return led(state, target_leaders(state))


def preferring(state: ClusterState, nodes: Mapping[PartitionKey, Sequence[int]]) -> ClusterState:
    """The state with preferred nodes of these partitions."""
    topics = {}
    for topic_id, row in state.topics.items():
        numbers = range(len(row.partitions))
        wanted = {at: tuple(nodes[topic_id, at]) for at in numbers if (topic_id, at) in nodes}
        topics[topic_id] = _with(row, preferred=wanted)
    return _with(state, topics=topics)


def without_partitions(state: ClusterState, gone: Collection[PartitionKey]) -> list[int]:
    """How many partitions each candidate leads, apart from these."""
    kept = Counter(leader for key, leader in leaders_of(state).items() if key not in gone)
    return [kept[row.incarnation] for row in candidates(state)]


# Preferred nodes.


@given(clusters(), st.data())
def test_preferred_nodes_lead_and_all_other_partitions_are_balanced(
    state: ClusterState, data: st.DataObject
) -> None:
    nodes = st.lists(st.sampled_from([*(row.node_id for row in state.brokers.values()), 999]))
    wanted = data.draw(
        st.dictionaries(st.sampled_from(sorted(leaders_of(state)) or [("", 0)]), nodes)
    )
    state = preferring(state, wanted)
    able = {row.node_id: row.incarnation for row in candidates(state)}
    fixed = {
        key: next(able[each] for each in rows if each in able)
        for key, rows in wanted.items()
        if any(each in able for each in rows) and key in leaders_of(state)
    }
    found = target_leaders(state)
    assert found.keys() == leaders_of(state).keys()
    assert {key: found[key] for key in fixed} == fixed
    rest = without_partitions(led(state, found), fixed)
    assert max(rest) - min(rest) <= 1
    assert moves(led(state, found)) == {}
    everything = spread(state, leaders_of(state), candidates(state))
    assert {key: everything[key] for key in fixed} == fixed
    assert everything.keys() == leaders_of(state).keys()


# Targets.


@given(clusters())
def test_candidates_lead_equally_many_partitions(state: ClusterState) -> None:
    found = target_leaders(state)
    assert found.keys() == leaders_of(state).keys()
    assert set(found.values()) <= {row.incarnation for row in candidates(state)}
    after = counts(led(state, found))
    assert max(after) - min(after) <= 1


@given(clusters())
def test_no_more_partitions_move_than_must(state: ClusterState) -> None:
    before = counts(state)
    quota, extra = divmod(len(leaders_of(state)), len(before))
    quotas = [quota + (at < extra) for at in range(len(before))]
    most_first = zip(sorted(before, reverse=True), quotas, strict=True)
    above = sum(max(0, count - most) for count, most in most_first)
    moved = moves(state)
    assert len(moved) == above + len(leaders_of(state)) - sum(before)
    # A candidate gives partitions up or gets some, never both.
    given_up = {leaders_of(state)[key] for key in moved}
    assert not given_up & set(moved.values())


@given(clusters(), st.data())
def test_once_some_moves_were_made_only_as_many_others_are_left(
    state: ClusterState, data: st.DataObject
) -> None:
    moved = moves(state)
    assert moves(led(state, moved)) == {}
    made = data.draw(st.sets(st.sampled_from(sorted(moved)))) if moved else set()
    some = led(state, {key: moved[key] for key in made})
    assert len(moves(some)) == len(moved) - len(made)


@given(clusters(), racks)
def test_a_broker_that_joins_gets_its_share_and_nothing_else_moves(
    state: ClusterState, rack: str
) -> None:
    fresh = broker(50, rack)
    after = joined(balanced(state), fresh)
    moved = moves(after)
    assert set(moved.values()) <= {fresh.incarnation}
    assert len(moved) <= -(-len(leaders_of(state)) // len(candidates(after)))


@given(clusters(least=2), st.sampled_from(["drained", "ended"]), st.data())
def test_when_a_broker_leaves_only_what_it_led_moves(
    state: ClusterState, how: str, data: st.DataObject
) -> None:
    state = balanced(_with(state, draining=()))
    gone = data.draw(st.sampled_from(candidates(state)))
    own = {key for key, leader in leaders_of(state).items() if leader == gone.incarnation}
    assert set(moves(without(state, gone, how))) == own


@given(equal_racks(), sizes)
def test_racks_lead_equally_many_of_each_topic_if_all_are_placed_at_once(
    state: ClusterState, given_sizes: list[int]
) -> None:
    rows = [topic(at, [NO_LEADER] * size) for at, size in enumerate(given_sizes)]
    state = cluster(state.brokers.values(), rows)
    found = target_leaders(state)
    for row in rows:
        leaders = [found[row.topic_id, number] for number in range(len(row.partitions))]
        in_rack = in_racks(state, leaders)
        assert max(in_rack) - min(in_rack) <= 1


@given(clusters(), st.randoms(use_true_random=False))
def test_every_broker_computes_the_same(state: ClusterState, random: Random) -> None:
    shuffled = _shuffled(state, random)
    assert list(target_leaders(shuffled).items()) == list(target_leaders(state).items())
    missing = [key for key, leader in leaders_of(state).items() if leader == NO_LEADER]
    among = candidates(state)
    found = spread(state, missing, among)
    random.shuffle(missing)
    assert spread(shuffled, missing, among[::-1]) == found


def _shuffled(state: ClusterState, random: Random) -> ClusterState:
    """The same state with its dicts in another order."""
    topics, brokers = list(state.topics.items()), list(state.brokers.items())
    random.shuffle(topics)
    random.shuffle(brokers)
    return _with(state, topics=dict(topics), brokers=dict(brokers))


@given(clusters())
def test_without_a_candidate_partitions_stay_with_their_live_leaders(state: ClusterState) -> None:
    nodes = sorted(row.node_id for row in state.brokers.values())
    before = leaders_of(state)
    kept = {key: leader for key, leader in before.items() if leader != NO_LEADER}
    assert target_leaders(_with(state, draining=tuple(nodes))) == kept
    assert spread(state, before, ()) == {}


# Spreading.


def _limits(counts: Sequence[int], missing: int) -> tuple[int, int]:
    """Pour the missing partitions over the candidates one by one, the lowest first."""
    median = statistics.median_high(counts)
    before = [max(count, median - 1) for count in counts]
    after = list(before)
    for _ in range(missing):
        after[after.index(min(after))] += 1
    low = min(after)
    return low, sum(was <= low < now for was, now in zip(before, after, strict=True))


def _spread_by_the_rules(
    state: ClusterState, keys: Collection[PartitionKey], among: Sequence[Candidate]
) -> dict[PartitionKey, int]:
    """Follow the rules of the module word by word: each partition is compared on all candidates."""
    leaders = {key: leader for key, leader in leaders_of(state).items() if key not in keys}
    rack_of = {row.incarnation: row.rack for row in state.brokers.values()}
    rack_of |= {row.incarnation: row.rack for row in among}
    size = Counter(row.rack for row in among)
    own = {row.incarnation for row in among}
    quota, extra = _limits(
        [list(leaders.values()).count(row.incarnation) for row in among], len(keys)
    )
    found: dict[PartitionKey, int] = {}

    def order(row: Candidate, topic_id: str) -> tuple[float | Fraction, ...]:
        counted = [leader for leader in leaders.values() if leader in own]
        led = [
            leader
            for key, leader in leaders.items()
            if key[0] == topic_id and rack_of.get(leader) in size
        ]
        missing = sum(key[0] == topic_id for key in keys if key not in found)
        in_rack = [rack_of[leader] for leader in led].count(row.rack)
        share = Fraction((len(led) + missing) * size[row.rack], len(among))
        tier = 0 if in_rack < int(share) else 1 if in_rack < share else 2
        count = counted.count(row.incarnation)
        return (
            count > quota or (count == quota and not extra),
            tier,
            0 if tier == 1 else Fraction(in_rack, size[row.rack]),
            led.count(row.incarnation),
            count,
            Fraction([rack_of[leader] for leader in counted].count(row.rack), size[row.rack]),
            row.node_id,
        )

    for topic_id, number in sorted(keys):
        best = min(among, key=lambda row: order(row, topic_id)).incarnation
        extra -= list(leaders.values()).count(best) == quota
        leaders[topic_id, number] = found[topic_id, number] = best
    return found


@given(clusters(), st.data())
def test_partitions_are_spread_by_the_rules(state: ClusterState, data: st.DataObject) -> None:
    live = [Candidate(row.incarnation, row.node_id, row.rack) for row in state.brokers.values()]
    fresh = Candidate(7, 77, "c")  # the state need not have a candidate yet
    among = data.draw(st.lists(st.sampled_from([*live, fresh]), min_size=1, unique=True))
    new = [("e" * 32, number) for number in range(data.draw(st.integers(0, 9)))]
    grown = [(topic_id, len(row.partitions)) for topic_id, row in state.topics.items()]
    keys = [*leaders_of(state), *grown, *new]
    wanted = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    assert spread(state, wanted, among) == _spread_by_the_rules(state, wanted, among)


@given(clusters(least=2), st.sampled_from(["drained", "ended", "created"]), st.data())
def test_what_is_spread_from_balance_leaves_nothing_to_move(
    state: ClusterState, what: str, data: st.DataObject
) -> None:
    state = balanced(_with(state, draining=()))
    if what == "created":
        added = topic(100, [NO_LEADER] * data.draw(st.integers(0, 20)))
        after = _with(state, topics={**state.topics, added.topic_id: added})
    else:
        after = without(state, data.draw(st.sampled_from(candidates(state))), what)
    among = candidates(after)
    keys = [
        key
        for key, leader in leaders_of(after).items()
        if leader not in {row.incarnation for row in among}
    ]
    assert moves(led(after, spread(after, keys, among))) == {}


@given(st.lists(racks, min_size=1), st.integers(1, 20))
def test_each_rack_leads_its_share_of_the_first_topic(given_racks: list[str], size: int) -> None:
    state = cluster(broker(at, rack) for at, rack in enumerate(given_racks))
    found = spread(state, [("e" * 32, number) for number in range(size)], candidates(state))
    for rack in sorted(set(given_racks)):
        count = sum(state.brokers[leader].rack == rack for leader in found.values())
        share = Fraction(size * given_racks.count(rack), len(given_racks))
        assert abs(count - share) < 1


@given(equal_racks(), sizes)
def test_topics_that_are_created_one_after_the_other_leave_nothing_to_move(
    state: ClusterState, given_sizes: list[int]
) -> None:
    for at, size in enumerate(given_sizes):
        topic_id = topic(at, ()).topic_id
        keys = [(topic_id, number) for number in range(size)]
        found = spread(state, keys, candidates(state))
        assert list(found) == keys
        in_rack = in_racks(state, found.values())
        assert max(in_rack) - min(in_rack) <= 1
        row = topic(at, list(found.values()))
        state = _with(state, topics={**state.topics, topic_id: row})
        assert moves(state) == {}
