"""Which brokers watch which: the same everywhere, balanced, stable, and without blind spots."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.cluster.liveness.watchers import watched_by, watchers_of
from neve.cluster.state import BrokerRegistration
from support.liveness_world import broker

incarnations = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12, unique=True)


def numbers(rows: list[BrokerRegistration]) -> list[int]:
    return [row.incarnation for row in rows]


@given(incarnations, st.integers(1, 16), st.randoms(use_true_random=False))
def test_the_watchers_depend_on_the_brokers_alone(
    given_numbers: list[int], count: int, random: object
) -> None:
    brokers = [broker(each) for each in given_numbers]
    shuffled = list(brokers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for each in brokers:
        watchers = numbers(watchers_of(each, brokers, count))
        assert watchers == numbers(watchers_of(each, shuffled, count))
        assert each.incarnation not in watchers
        assert len(set(watchers)) == len(watchers) == min(count, len(brokers) - 1)


@given(incarnations, st.integers(1, 5), st.data())
def test_watched_by_is_the_inverse_and_only_live_brokers_with_an_address_watch(
    given_numbers: list[int], count: int, data: st.DataObject
) -> None:
    brokers = [
        broker(each, live=data.draw(st.booleans()), port=data.draw(st.sampled_from([0, 9092])))
        for each in given_numbers
    ]
    able = {row.incarnation for row in brokers if row.live and row.port}
    for me in brokers:
        watched = numbers(watched_by(me, brokers, count))
        assert watched == sorted(watched)
        for row in brokers:
            watchers = numbers(watchers_of(row, brokers, count))
            assert set(watchers) <= able
            assert (row.incarnation in watched) == (row.live and me.incarnation in watchers)


def test_a_live_process_without_an_address_is_watched_and_does_not_watch() -> None:
    job = broker(9, port=0)
    brokers = [broker(1), broker(2), job]
    assert sorted(numbers(watchers_of(job, brokers))) == [1, 2]
    assert watched_by(job, brokers) == []
    assert numbers(watched_by(broker(1), brokers)) == [2, 9]


def test_the_choice_never_changes() -> None:
    """Brokers of different versions must agree on it."""
    brokers = [broker(each) for each in range(8)]
    assert [numbers(watchers_of(each, brokers)) for each in brokers] == CHOSEN


CHOSEN = [
    [5, 4, 1],
    [6, 4, 2],
    [0, 5, 4],
    [7, 2, 6],
    [2, 3, 0],
    [3, 6, 7],
    [4, 0, 7],
    [1, 5, 0],
]


@given(incarnations, st.integers(1, 4), st.data())
def test_a_broker_that_leaves_or_joins_changes_one_watcher_of_each_at_most(
    given_numbers: list[int], count: int, data: st.DataObject
) -> None:
    brokers = [broker(each) for each in given_numbers]
    leaver = data.draw(st.sampled_from(brokers))
    left = [row for row in brokers if row is not leaver]
    for each in left:
        before = set(numbers(watchers_of(each, brokers, count)))
        after = set(numbers(watchers_of(each, left, count)))
        if leaver.incarnation not in before:
            assert after == before
        assert len(after - before) <= 1
        assert before - after <= {leaver.incarnation}


@given(incarnations, st.integers(1, 4), st.data())
def test_of_any_brokers_that_die_at_once_a_survivor_watches_one(
    given_numbers: list[int], count: int, data: st.DataObject
) -> None:
    brokers = [broker(each) for each in given_numbers]
    survivors = set(data.draw(st.lists(st.sampled_from(given_numbers), min_size=1)))
    dead = [row for row in brokers if row.incarnation not in survivors]
    watchers = {each for row in dead for each in numbers(watchers_of(row, brokers, count))}
    assert not dead or survivors & watchers


@pytest.mark.parametrize("first", [0, 1_000_000])
def test_the_watching_is_balanced(first: int) -> None:
    brokers = [broker(first + each) for each in range(60)]
    watching = Counter(each for row in brokers for each in numbers(watchers_of(row, brokers)))
    assert sum(watching.values()) == 180
    assert max(watching.values()) <= 10
