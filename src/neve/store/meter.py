"""Counters and latencies of store calls, by operation.

Every call is counted once, with its outcome, bytes and time. `snapshot()` returns plain data. The
cost per call is a bisection and a few additions.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from itertools import accumulate
from typing import Any, TypeVar

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from neve.serving.logs import event
from neve.store.port import Store
from neve.store.wrapper import OPERATIONS, Call, Operation, Wrapper

T = TypeVar("T")
_log = logging.getLogger(__name__)

# Upper bounds from 64 microseconds to 134 seconds, each 2 ** 0.5 times the previous: a quantile is
# at most that factor too high.
BOUNDS_SECONDS = tuple(64e-6 * 2 ** (step / 2) for step in range(43))

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (NotFoundError, "not_found"),
    (ExistsError, "exists"),
    (ConflictError, "conflict"),
    (UnavailableError, "unavailable"),
    (DeniedError, "denied"),
    (StoreFailedError, "failed"),
    (asyncio.CancelledError, "cancelled"),
)


class Histogram:
    """Latencies in log-spaced buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.count = 0
        self.sum_seconds = 0.0
        self.max_seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.count += 1
        self.sum_seconds += seconds
        self.max_seconds = max(self.max_seconds, seconds)

    def quantile(self, share: float) -> float:
        """Return the bound of the bucket with this quantile; 0.0 without samples."""
        rank = share * self.count
        for index, below in enumerate(accumulate(self._counts)):
            if below >= rank and below:
                in_bounds = index < len(BOUNDS_SECONDS)
                bound = BOUNDS_SECONDS[index] if in_bounds else self.max_seconds
                return min(bound, self.max_seconds)
        return 0.0

    def snapshot(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "sum_seconds": self.sum_seconds,
            "max_seconds": self.max_seconds,
            "p50_seconds": self.quantile(0.5),
            "p95_seconds": self.quantile(0.95),
            "p99_seconds": self.quantile(0.99),
            # Cumulative, as in Prometheus; the last bound is infinite.
            "buckets": list(
                zip((*BOUNDS_SECONDS, float("inf")), accumulate(self._counts), strict=True)
            ),
        }


class _OperationMeter:
    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.sent_bytes = 0
        self.received_bytes = 0
        self.latency = Histogram()


class Meter(Wrapper):
    """Counts the calls of `inner`, and logs those that take longer than `slow_seconds`."""

    def __init__(self, inner: Store, slow_seconds: float = float("inf")) -> None:
        super().__init__(inner)
        self._slow_seconds = slow_seconds
        self._meters: dict[Operation, _OperationMeter] = {
            operation: _OperationMeter() for operation in OPERATIONS
        }

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        meter = self._meters[call.operation]
        meter.sent_bytes += call.sent_bytes
        started = runtime.monotonic()
        outcome = "ok"
        try:
            result = await work()
        except BaseException as error:
            outcome = _outcome(error)
            raise
        finally:
            seconds = runtime.monotonic() - started
            meter.latency.add(seconds)
            if seconds > self._slow_seconds:
                self._log_slow(call, seconds, outcome)
            meter.outcomes[outcome] = meter.outcomes.get(outcome, 0) + 1
        if isinstance(result, memoryview):
            meter.received_bytes += result.nbytes
        return result

    def _log_slow(self, call: Call, seconds: float, outcome: str) -> None:
        about = {"operation": call.operation, "key": call.key, "outcome": outcome}
        event(_log, logging.WARNING, "the store is slow", **about, seconds=round(seconds, 3))

    def calls(self, operation: Operation, outcome: str | None = None) -> int:
        """Return the number of completed calls, of all outcomes or of one."""
        outcomes = self._meters[operation].outcomes
        return sum(outcomes.values()) if outcome is None else outcomes.get(outcome, 0)

    def snapshot(self) -> dict[str, Any]:
        """Return all counters, by operation."""
        return {
            operation: {
                "outcomes": dict(sorted(meter.outcomes.items())),
                "sent_bytes": meter.sent_bytes,
                "received_bytes": meter.received_bytes,
                "latency": meter.latency.snapshot(),
            }
            for operation, meter in self._meters.items()
        }


def _outcome(error: BaseException) -> str:
    return next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "error")
