"""What a leader concludes from the answers to its notifications."""

from __future__ import annotations

from neve.cluster.follower_progress import NOTIFY_GAP_SECONDS, FollowerProgress

LAG, IDLE = 10.0, 2.0
A, B = 7, 9


def progress(now: float = 0.0) -> FollowerProgress:
    found = FollowerProgress(LAG, IDLE)
    found.follow([A], now)
    return found


def exchange(row: FollowerProgress, end: int, position: int, now: float) -> None:
    row.sent(A, end, now)
    row.answered(A, position)


def test_a_new_follower_is_notified_at_once_and_an_idle_one_now_and_then() -> None:
    row = progress()
    assert row.due(0, 0.0) == [A]
    row.sent(A, 0, 0.0)
    assert row.due(5, 1.0) == [], "one notification at a time"
    assert row.next_at(5) is None
    row.answered(A, 0)
    assert row.due(0, IDLE - 0.01) == []
    assert (row.next_at(0), row.due(0, IDLE)) == (IDLE, [A])


def test_what_was_committed_is_sent_soon_but_not_each_time() -> None:
    row = progress()
    exchange(row, 3, 3, 0.0)
    assert row.due(4, NOTIFY_GAP_SECONDS / 2) == []
    assert row.due(4, NOTIFY_GAP_SECONDS) == [A]


def test_a_follower_that_does_not_answer_is_asked_seldom() -> None:
    row = progress()
    row.sent(A, 3, 0.0)
    row.failed(A)
    assert row.due(9, IDLE - 0.01) == []
    assert row.due(9, IDLE) == [A]


def test_a_follower_lags_if_it_has_not_caught_up_for_too_long() -> None:
    row = progress()
    exchange(row, 5, 5, 1.0)
    assert row.lagging(1.0 + LAG) == ()
    assert row.lagging(1.1 + LAG) == (A,)
    exchange(row, 6, 4, 12.0)
    assert row.lagging(12.0) == (A,), "it has not even what it had to"
    exchange(row, 6, 6, 13.0)
    assert row.lagging(13.0) == ()


def test_a_follower_of_a_busy_leader_is_always_a_little_behind_and_does_not_lag() -> None:
    row = progress()
    for at in range(40):
        exchange(row, 10 * at, 10 * at - 5, float(at))
    assert row.lagging(39.0) == ()
    assert row.is_recommended(A, 39.0)
    row.follow([A, B], 39.0)
    assert row.is_recommended(A, 39.0), "what is known of a follower stays known"


def test_only_a_follower_that_answers_and_keeps_up_is_recommended() -> None:
    row = progress()
    assert not row.is_recommended(A, 0.0)
    exchange(row, 5, -1, 0.0)
    assert not row.is_recommended(A, 0.0), "it does not follow yet"
    exchange(row, 5, 5, 1.0)
    assert row.is_recommended(A, 1.0 + LAG / 2)
    assert not row.is_recommended(A, 1.1 + LAG / 2)
    row.follow([B], 2.0)
    assert not row.is_recommended(A, 2.0)
    row.answered(A, 5)
    row.failed(A)
    assert row.lagging(100.0) == (B,)
