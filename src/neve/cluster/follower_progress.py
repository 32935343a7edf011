"""How far the followers of a process's own stream have read, as they answer its notifications.

Pure: time and outcomes are passed in. A follower has caught up as of a notification if a later
answer shows that it has read all that was committed when the notification was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The least time between two notifications of one follower: their bytes stay far below those of the
# records, however many objects the leader commits.
NOTIFY_GAP_SECONDS = 0.1
# A follower is recommended to consumers if it has caught up within this part of the lag that it may
# have: with more it would soon send them back.
RECOMMENDED_SHARE = 0.5


@dataclass
class _Follower:
    """What was sent to a follower, last and before, and what it has answered."""

    caught_up_at: float
    sent_at: float | None = None
    sent_end: int = -1
    before_at: float | None = None
    before_end: int = -1
    position: int = -1
    is_waiting: bool = False  # for its answer
    has_failed: bool = False  # it did not answer the last one


class FollowerProgress:
    """The followers of one stream."""

    def __init__(self, lag_seconds: float, notify_seconds: float) -> None:
        self._lag_seconds = lag_seconds
        self._notify_seconds = notify_seconds
        self._followers: dict[int, _Follower] = {}

    def follow(self, followers: Iterable[int], now: float) -> None:
        """Set the followers. A new follower has all the time that it may lag to catch up."""
        self._followers = {
            each: self._followers.get(each) or _Follower(caught_up_at=now) for each in followers
        }

    def due(self, end: int, now: float) -> list[int]:
        """Return the followers to notify now that all numbers below `end` are committed."""
        return [key for key in self._followers if self._due_at(key, end) <= now]

    def next_at(self, end: int) -> float | None:
        """Return when the next follower is due; None if none is until something happens."""
        times = [self._due_at(key, end) for key in self._followers]
        return min((at for at in times if at != _NEVER), default=None)

    def _due_at(self, key: int, end: int) -> float:
        row = self._followers[key]
        if row.is_waiting:
            return _NEVER
        if row.sent_at is None:
            return -_NEVER
        is_new = row.sent_end < end and not row.has_failed
        return row.sent_at + (NOTIFY_GAP_SECONDS if is_new else self._notify_seconds)

    def sent(self, key: int, end: int, now: float) -> None:
        """Take note that a notification is on its way: all numbers below `end` are committed."""
        row = self._followers[key]
        row.is_waiting = True
        row.before_at, row.before_end = row.sent_at, row.sent_end
        row.sent_at, row.sent_end = now, end

    def answered(self, key: int, position: int) -> None:
        """Take note of the number up to which a follower has read; -1 if it has not begun."""
        row = self._followers.get(key)
        if row is None:
            return
        row.is_waiting = row.has_failed = False
        row.position = position
        if position < 0:
            return
        if position >= row.sent_end and row.sent_at is not None:
            row.caught_up_at = max(row.caught_up_at, row.sent_at)
        elif position >= row.before_end and row.before_at is not None:
            row.caught_up_at = max(row.caught_up_at, row.before_at)

    def failed(self, key: int) -> None:
        """Take note that a notification was not answered: the next one is due after a pause."""
        row = self._followers.get(key)
        if row is not None:
            row.is_waiting, row.has_failed = False, True

    def lagging(self, now: float) -> tuple[int, ...]:
        """Return the followers that have not caught up for longer than they may, in order."""
        return tuple(
            sorted(
                key
                for key, row in self._followers.items()
                if now - row.caught_up_at > self._lag_seconds
            )
        )

    def is_recommended(self, key: int, now: float) -> bool:
        """Whether consumers may be sent to a follower: it answers, and keeps up."""
        row = self._followers.get(key)
        if row is None or row.position < 0:
            return False
        return now - row.caught_up_at <= RECOMMENDED_SHARE * self._lag_seconds


_NEVER = float("inf")
