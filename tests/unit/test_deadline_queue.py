"""What is due when: the earliest first, each once."""

from __future__ import annotations

from neve.runtime.deadline_queue import STALE_MAX, DeadlineQueue


def test_the_earliest_comes_first_and_equals_in_their_order() -> None:
    due: DeadlineQueue[str] = DeadlineQueue()
    for key, at in (("c", 3.0), ("a", 1.0), ("b", 1.0)):
        due.set(key, at)
    assert due.next_at() == 1.0
    assert [due.pop(9) for _ in range(4)] == ["a", "b", "c", None]
    assert due.next_at() is None


def test_what_is_not_due_yet_stays() -> None:
    due: DeadlineQueue[str] = DeadlineQueue()
    due.set("a", 5.0)
    assert due.pop(4.9) is None
    assert "a" in due
    assert due.pop(5.0) == "a"
    assert "a" not in due


def test_a_key_has_one_time_the_last_it_was_given() -> None:
    due: DeadlineQueue[str] = DeadlineQueue()
    due.set("a", 1.0)
    due.set("a", 8.0)
    assert (len(due), due.next_at(), due.pop(7)) == (1, 8.0, None)
    due.set_if_earlier("a", 9.0)
    assert due.next_at() == 8.0
    due.set_if_earlier("a", 2.0)
    assert due.pop(2) == "a"
    assert due.pop(99) is None


def test_dropped_keys_never_come_up() -> None:
    due: DeadlineQueue[str] = DeadlineQueue()
    due.set("a", 1.0)
    due.drop("a")
    due.drop("unknown")
    assert due.pop(9) is None


def test_replaced_times_take_up_no_room() -> None:
    due: DeadlineQueue[int] = DeadlineQueue()
    for at in range(100_000):
        due.set(at % 10, float(at))
    assert len(due._heap) <= 2 * 10 + STALE_MAX + 1
    assert [due.pop(1e9) for _ in range(10)] == list(range(10))
