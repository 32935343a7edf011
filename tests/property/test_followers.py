"""Every stream has followers in other racks, and a join or a leave changes one at most."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.cluster.followers import FollowerSets, followers_of
from neve.cluster.state import BrokerRegistration, ClusterState

COUNTS = st.integers(0, 5)
BROKERS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


def broker(node_id: int, rack: str, *, live: bool = True, port: int = 9092) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=node_id,
        incarnation=1000 - node_id,
        session="s",
        inflight=4,
        at_ms=1,
        port=port,
        rack=rack,
        live=live,
    )


def cluster(racks: list[str]) -> ClusterState:
    rows = [broker(at, rack) for at, rack in enumerate(racks)]
    return ClusterState(brokers={row.incarnation: row for row in rows})


def racks_of(state: ClusterState, chosen: tuple[int, ...]) -> list[str]:
    return [state.brokers[each].rack for each in chosen]


@settings(deadline=None)
@given(BROKERS, COUNTS)
def test_as_many_as_are_wanted_follow_or_all_others(racks: list[str], count: int) -> None:
    state = cluster(racks)
    for key in state.brokers:
        found = followers_of(state, key, count)
        assert len(found) == len(set(found)) == min(count, len(racks) - 1)
        assert key not in found


@settings(deadline=None)
@given(BROKERS, COUNTS)
def test_no_rack_has_two_more_than_one_that_has_a_broker_left(racks: list[str], count: int) -> None:
    state = cluster(racks)
    sizes = Counter(racks)
    for key, leader in state.brokers.items():
        found = followers_of(state, key, count)
        used = Counter([leader.rack, *racks_of(state, found)])
        for rack in racks_of(state, found):
            assert all(used[rack] <= used[each] + 1 for each in sizes if used[each] < sizes[each])


@settings(deadline=None)
@given(BROKERS, st.sampled_from("abcde"), COUNTS)
def test_a_join_or_a_leave_changes_one_follower_at_most(
    racks: list[str], rack: str, count: int
) -> None:
    before, after = cluster(racks), cluster([*racks, rack])
    joined = 1000 - len(racks)
    for key in before.brokers:
        old, new = set(followers_of(before, key, count)), set(followers_of(after, key, count))
        assert new - old <= {joined}
        assert len(old - new) <= 1


@settings(deadline=None)
@given(BROKERS, st.randoms(use_true_random=False))
def test_the_order_of_brokers_does_not_matter(racks: list[str], chance: object) -> None:
    state = cluster(racks)
    rows = list(state.brokers.items())
    chance.shuffle(rows)  # type: ignore[attr-defined]
    other = msgspec.structs.replace(state, brokers=dict(rows))
    for key in state.brokers:
        assert followers_of(state, key) == followers_of(other, key)


def test_only_live_brokers_with_an_address_that_do_not_drain_follow() -> None:
    rows = [
        broker(1, "a"),
        broker(2, "b", live=False),
        broker(3, "b", port=0),
        broker(4, "b"),
        broker(5, "c"),
    ]
    state = ClusterState(brokers={row.incarnation: row for row in rows}, draining=(4,))
    assert followers_of(state, 999) == (995,)
    assert followers_of(state, 998) == (), "a dead process has no followers"
    assert followers_of(state, 1) == ()


def test_followers_are_spread_over_the_brokers() -> None:
    state = cluster(list("abc") * 20)
    counts = Counter(each for key in state.brokers for each in followers_of(state, key))
    assert sum(counts.values()) == 2 * len(state.brokers)
    assert max(counts.values()) <= 8, "with a weak hash, a few would follow most"


def test_sets_are_computed_again_when_brokers_change_only() -> None:
    sets = FollowerSets(2)
    state = cluster(list("abc"))
    found = sets.all(state)
    assert sets.all(msgspec.structs.replace(state, next_producer_id=7)) is found
    assert sets.of(state, 1000) == followers_of(state, 1000)
    lagging = msgspec.structs.replace(state, lagging={1000: (999,)})
    assert sets.in_sync(lagging, 1000) == (998,)
    drained = msgspec.structs.replace(state, draining=(1,))
    assert sets.of(drained, 1000) == (998,)
