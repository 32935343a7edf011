"""Whether a broker hears from all that it exchanges pings with."""

from __future__ import annotations

from neve.cluster.peer_positions import PeerPositions


def test_without_peers_there_is_nobody_to_hear_from() -> None:
    positions = PeerPositions(2.0)
    assert not positions.are_recent(0.0)
    positions.heard(1, 0.0)
    assert not positions.are_recent(0.0), "it is none of them"


def test_all_of_them_count_and_only_for_a_time() -> None:
    positions = PeerPositions(2.0)
    positions.expect([1, 2])
    positions.heard(1, 10.0)
    assert not positions.are_recent(10.0)
    positions.heard(2, 11.0)
    assert positions.are_recent(12.0)
    assert not positions.are_recent(12.1), "the first is silent"
    positions.heard(1, 12.5)
    assert positions.are_recent(13.0)


def test_a_new_one_counts_once_it_was_heard_and_an_old_one_no_more() -> None:
    positions = PeerPositions(2.0)
    positions.expect([1])
    positions.heard(1, 10.0)
    positions.expect([1, 3])
    assert not positions.are_recent(10.0)
    positions.heard(3, 10.0)
    assert positions.are_recent(10.0)
    positions.expect([3])
    positions.heard(3, 20.0)
    assert positions.are_recent(20.0)
