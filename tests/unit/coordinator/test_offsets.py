"""Committed offsets: shown when committed, the later of two counts, and when they grow old."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.coordinator.group_messages import GroupState
from neve.coordinator.offsets import (
    NO_TOPIC_ID,
    CommittedOffset,
    Idleness,
    Offsets,
    size_of,
)

KEY = ("orders", 0)
OTHER = ("orders", 1)
ID = b"i" * 16


def at(offset: int, *, time_ms: int = 0, topic_id: bytes = ID) -> CommittedOffset:
    return CommittedOffset(offset, commit_timestamp_ms=time_ms, topic_id=topic_id)


def test_a_commit_is_seen_when_it_is_committed() -> None:
    offsets = Offsets()
    change = offsets.begin({KEY: at(5)})
    assert offsets.get(KEY) is None
    assert not offsets.is_idle
    offsets.committed(change)
    assert offsets.get(KEY) == at(5)
    assert offsets.is_settled


def test_a_failed_commit_leaves_what_was_there() -> None:
    offsets = Offsets()
    offsets.committed(offsets.begin({KEY: at(5)}))
    offsets.failed(offsets.begin({KEY: at(6)}))
    assert offsets.get(KEY) == at(5)


def test_of_two_commits_the_later_one_counts_however_they_are_told() -> None:
    offsets = Offsets()
    first, second = offsets.begin({KEY: at(5), OTHER: at(1)}), offsets.begin({KEY: at(6)})
    offsets.committed(second)
    offsets.committed(first)
    assert (offsets.get(KEY), offsets.get(OTHER)) == (at(6), at(1))
    third = offsets.begin({KEY: at(2)})
    offsets.committed(third)
    assert offsets.get(KEY) == at(2), "going back is allowed"


def test_a_removal_has_its_place_too() -> None:
    offsets = Offsets()
    offsets.committed(offsets.begin({KEY: at(5)}))
    removal, commit = offsets.begin({KEY: None}), offsets.begin({KEY: at(7)})
    offsets.committed(commit)
    offsets.committed(removal)
    assert offsets.get(KEY) == at(7)
    offsets.committed(offsets.begin({KEY: None}))
    assert offsets.is_idle


def test_a_removal_of_all_names_what_is_on_its_way() -> None:
    offsets = Offsets()
    offsets.committed(offsets.begin({KEY: at(5)}))
    offsets.begin({OTHER: at(1)})
    assert offsets.everything() == [KEY, OTHER]
    assert offsets.settled([KEY, OTHER]) == [KEY]


def test_offsets_belong_to_a_topic_by_its_id() -> None:
    offsets = Offsets()
    offsets.restore(KEY, at(5))
    offsets.restore(("old", 0), at(5, topic_id=NO_TOPIC_ID))
    assert offsets.orphans({"orders": ID, "old": b"x" * 16}.get) == []
    assert offsets.orphans({"orders": b"n" * 16, "old": b"x" * 16}.get) == [KEY]
    assert offsets.orphans(lambda _: None) == [KEY, ("old", 0)]
    assert offsets.orphans(lambda _: None, [("old", 0), OTHER]) == [("old", 0)]


EMPTY = {"state": GroupState.EMPTY, "state_since_ms": 500, "is_simple": False, "subscribed": None}


@pytest.mark.parametrize(
    ("changes", "since_ms"),
    [
        pytest.param({"is_simple": True}, 100, id="simple consumers: since the commit"),
        pytest.param({}, 500, id="empty: since it became so"),
        pytest.param({"state_since_ms": 50}, 100, id="empty, committed since by a tool"),
        pytest.param(
            {"state": GroupState.STABLE, "subscribed": frozenset({"other"})}, 100, id="not read"
        ),
        pytest.param(
            {"state": GroupState.STABLE, "subscribed": frozenset({"orders"})}, None, id="read"
        ),
        pytest.param({"state": GroupState.STABLE}, None, id="who knows what is read"),
        pytest.param(
            {"state": GroupState.PREPARING, "subscribed": frozenset()}, None, id="rebalancing"
        ),
        pytest.param(
            {"state": GroupState.COMPLETING, "subscribed": frozenset()}, None, id="completing"
        ),
    ],
)
def test_from_when_on_an_offset_grows_old(changes: dict[str, object], since_ms: int | None) -> None:
    idle = Idleness(**{**EMPTY, **changes})  # type: ignore[arg-type]
    assert idle.since_ms("orders", at(5, time_ms=100)) == since_ms


def test_offsets_expire_one_by_one() -> None:
    offsets = Offsets()
    offsets.restore(KEY, at(5, time_ms=100))
    offsets.restore(OTHER, at(5, time_ms=101))
    simple = Idleness(**{**EMPTY, "is_simple": True})  # type: ignore[arg-type]
    assert offsets.expired(1_099, 1_000, simple) == []
    assert offsets.expired(1_100, 1_000, simple) == [KEY]
    assert offsets.expired(1_101, 1_000, simple) == [KEY, OTHER]


def test_offsets_are_counted_from_when_they_are_begun_until_they_are_gone() -> None:
    share = runtime.MemoryShare("offsets", 10_000)
    offsets = Offsets()
    offsets.restore(("a", 0), CommittedOffset(1, metadata="x" * 100))
    offsets.count_in(share)
    before = share.used
    assert before == size_of(("a", 0), CommittedOffset(1, metadata="x" * 100)) > 700
    first = offsets.begin({("a", 0): CommittedOffset(2), ("a", 1): CommittedOffset(2)})
    second = offsets.begin({("a", 0): CommittedOffset(3, metadata="y")})
    assert share.used > before
    offsets.committed(second)
    offsets.committed(first)  # told later, begun earlier: of the same partition it does not count
    kept = {("a", 0): CommittedOffset(3, metadata="y"), ("a", 1): CommittedOffset(2)}
    assert dict(offsets.items()) == kept
    assert share.used == sum(size_of(*each) for each in kept.items())
    offsets.failed(offsets.begin({("b", 7): CommittedOffset(1, metadata="z" * 1_000)}))
    assert share.used == sum(size_of(*each) for each in kept.items())
    offsets.committed(offsets.begin({("a", 1): None}))
    late = offsets.begin({("a", 2): CommittedOffset(1)})
    offsets.count_in(None)
    offsets.committed(late)  # the group was given up meanwhile
    assert share.used == 0


def test_where_there_is_no_room_only_what_needs_no_more_fits() -> None:
    share = runtime.MemoryShare("offsets", 2_000)
    offsets = Offsets()
    offsets.count_in(share)
    offsets.committed(offsets.begin({("a", 0): CommittedOffset(1, metadata="x" * 600)}))
    assert offsets.fits({("a", 0): CommittedOffset(2, metadata="y" * 600)})
    assert not offsets.fits({("a", 1): CommittedOffset(2)})
    assert not offsets.fits({("a", 0): CommittedOffset(2, metadata="y" * 900)})
