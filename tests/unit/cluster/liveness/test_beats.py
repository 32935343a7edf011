"""When a process writes its heartbeat."""

from __future__ import annotations

from neve.cluster.liveness.beats import Beats
from support.liveness_world import TIMING

RECENT = TIMING.recent_seconds


def watched(*watchers: int, position: int = 10, now: float = 0.0) -> Beats:
    beats = Beats(TIMING)
    beats.watch(watchers, position, now)
    return beats


def test_without_a_watcher_no_heartbeat_is_ever_due() -> None:
    beats = watched()
    assert beats.next_at() is None
    assert beats.due(1e9) is None


def test_a_process_that_all_watchers_ping_writes_nothing() -> None:
    beats = watched(1, 2)
    for at in range(100):
        for watcher in (1, 2):
            beats.pinged(watcher, float(at), hears=True, position=10)
        assert beats.due(at + 0.99) is None


def test_if_one_watcher_is_missing_a_heartbeat_is_due_every_interval() -> None:
    beats = watched(1, 2)
    counts = []
    for tenth in range(100):
        now = tenth / 10
        beats.pinged(1, now, hears=True, position=10)
        if (count := beats.due(now)) is not None:
            counts.append((now, count))
    assert counts == [(RECENT + at, at + 1) for at in range(8)]


def test_the_first_ping_may_take_two_intervals_and_so_may_each_next_one() -> None:
    beats = watched(1)
    assert beats.next_at() == RECENT
    beats.pinged(1, 1.9, hears=True, position=10)
    assert beats.next_at() == 1.9 + RECENT
    assert beats.due(1.8 + RECENT) is None
    assert beats.due(1.9 + RECENT) == 1


def test_a_watcher_that_does_not_hear_the_answers_needs_a_heartbeat_at_once() -> None:
    beats = watched(1, 2)
    beats.pinged(1, 0.5, hears=True, position=10)
    beats.pinged(2, 0.5, hears=False, position=10)
    assert beats.due(0.5) == 1
    beats.pinged(2, 1.5, hears=True, position=10)
    assert beats.next_at() == 0.5 + RECENT


def test_heartbeats_are_never_less_than_an_interval_apart() -> None:
    beats = watched(1)
    beats.pinged(1, 0.5, hears=False, position=10)
    assert beats.due(0.5) == 1
    beats.pinged(1, 0.6, hears=False, position=10)
    assert beats.next_at() == 1.5
    assert beats.due(1.4) is None
    assert beats.due(1.5) == 2


def test_a_sender_that_knows_a_newer_cluster_log_counts_as_a_watcher() -> None:
    beats = watched(1)
    beats.pinged(9, 0.0, hears=True, position=11)
    for now in (0.9, 1.8):
        beats.pinged(1, now, hears=True, position=10)
    assert beats.next_at() == RECENT
    assert beats.due(RECENT) == 1


def test_until_the_process_has_read_that_far() -> None:
    beats = watched(1)
    beats.pinged(9, 0.0, hears=True, position=12)
    beats.watch([1], 11, 0.5)
    assert beats.next_at() == RECENT
    beats.pinged(1, 0.6, hears=True, position=10)
    beats.watch([1], 12, 0.7)
    assert beats.next_at() == 0.6 + RECENT


def test_a_sender_that_is_not_a_watcher_any_more_does_not_count() -> None:
    beats = watched()
    beats.pinged(9, 0.0, hears=True, position=10)
    assert beats.next_at() is None


def test_a_change_of_watchers_forgets_the_old_and_keeps_the_others() -> None:
    beats = watched(1, 2)
    beats.pinged(1, 0.5, hears=True, position=10)
    beats.pinged(2, 0.1, hears=True, position=10)
    beats.watch([1, 3], 11, 1.0)
    assert beats.next_at() == 0.5 + RECENT
    beats.pinged(1, 1.5, hears=True, position=11)
    assert beats.next_at() == 1.0 + RECENT
    beats.watch([], 12, 2.0)
    assert beats.next_at() is None
