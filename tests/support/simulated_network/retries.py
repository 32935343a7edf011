"""When one end of a TCP connection sends again what the other has not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 120.0
OPENING_SECONDS = 1.0
"""The first time-out of a connection whose round trip is not known."""
DOUBLINGS_MAX = 10


class Clock(Protocol):
    """The time of the kernel."""

    def now(self) -> float: ...

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle: ...


class RetryTimer:
    """Calls `retry` when an answer is late. Each time-out in a row is twice as long."""

    def __init__(
        self, clock: Clock, is_waiting: Callable[[], bool], retry: Callable[[], None]
    ) -> None:
        self.failures = 0  # time-outs since the peer last answered
        self._clock = clock
        self._is_waiting = is_waiting
        self._retry = retry
        self._doublings = 0
        self._is_idle = True
        self._handle: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._round_trip_seconds = 0.0
        self._measured: tuple[int, float] | None = None  # a sequence number, and when it was sent

    @property
    def _seconds(self) -> float:
        known = self._round_trip_seconds
        first = max(RETRY_SECONDS_MIN, 3 * known) if known else OPENING_SECONDS
        return min(RETRY_SECONDS_MAX, first * (1 << self._doublings))

    def start(self) -> None:
        """Begin to wait for an answer, unless it waits already."""
        if self._is_idle and self._is_waiting():
            self._is_idle = False
            self._set()

    def progressed(self) -> None:
        """The peer has acknowledged more, or has room for more."""
        self._doublings = 0
        self._is_idle = not self._is_waiting()
        if not self._is_idle:
            self._set()

    def _set(self) -> None:
        self._due_at = self._clock.now() + self._seconds
        # A timer that fires too early is moved when it fires, not with each answer.
        if self._handle is None or self._handle.when() > self._due_at:
            self.stop()
            self._handle = self._clock.later(self._seconds, self._fire)

    def _fire(self) -> None:
        self._handle = None
        if not self._is_waiting():
            self._is_idle = True
            return
        remaining = self._due_at - self._clock.now()
        if remaining > 0:
            self._handle = self._clock.later(remaining, self._fire)
            return
        self.failures += 1
        self._doublings = min(self._doublings + 1, DOUBLINGS_MAX)
        self._measured = None  # the answer could be to either copy
        self._set()
        self._retry()

    def stop(self) -> None:
        """Wait for nothing more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def sent(self, sequence: int) -> None:
        """Measure the time until this sequence number is acknowledged."""
        if self._measured is None:
            self._measured = (sequence, self._clock.now())

    def acknowledged(self, sequence: int) -> None:
        """Everything below this sequence number is acknowledged."""
        if self._measured is not None and self._measured[0] <= sequence:
            seconds = self._clock.now() - self._measured[1]
            known = self._round_trip_seconds
            self._round_trip_seconds = known + (seconds - known) / 8 if known else seconds
            self._measured = None
