"""Hedging: a slow get or create is sent a second time, and the first response wins.

A call is slow beyond the 95th percentile of recent latencies of the same operation and size class,
but never below a floor, and only with enough samples. The share of hedged calls is bounded, and a
hedge uses only a store slot that is free at that moment.

Both attempts of a create send the same bytes, so it does not matter which one takes effect; the
loser is cancelled and may still take effect. A success of either wins. ExistsError is raised only
while no success is known: after a refusal, the other attempt gets one more hedge delay, because it
most likely caused the refusal. As everywhere, ExistsError means: read the key to find the winner.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.settings import StoreSettings
from neve.store.gate import NoFreeSlotError
from neve.store.port import OBJECT_BYTES_MAX, Buffer, Store
from neve.store.wrapper import Operation, Wrapper

T = TypeVar("T")

SAMPLES_KEPT = 256
SAMPLES_BEFORE_HEDGING = 32
SAMPLES_BETWEEN_ESTIMATES = 16
QUANTILE = 0.95
# A call close to the percentile is not slow; steady stores have many of them.
DELAY_FACTOR = 1.05
# Hedges that accumulate while calls are fast, for a burst when the store stalls.
SAVED_HEDGES_MAX = 10.0
# Of two failures, one that is not of these types is raised: it is more specific.
_UNSPECIFIC = (ConflictError, UnavailableError)


class Latencies:
    """Recent latencies of one kind of call, and their 95th percentile."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._since_estimate = 0
        self._p95: float | None = None

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._since_estimate += 1
        if len(self._seconds) >= SAMPLES_BEFORE_HEDGING and (
            self._p95 is None or self._since_estimate >= SAMPLES_BETWEEN_ESTIMATES
        ):
            self._p95 = sorted(self._seconds)[int(QUANTILE * len(self._seconds))]
            self._since_estimate = 0

    @property
    def p95(self) -> float | None:
        """The 95th percentile in seconds; None until there are enough samples."""
        return self._p95


class Hedge(Wrapper):
    """Sends slow calls of `inner` a second time through `second`."""

    def __init__(self, inner: Store, second: Store, settings: StoreSettings) -> None:
        super().__init__(inner)
        self._second = second
        self._floor_seconds = settings.hedge_floor_ms / 1000
        self._share_max = settings.hedge_share_max if settings.hedge_enabled else 0.0
        self._saved_hedges = 0.0
        self._latencies: dict[tuple[Operation, int], Latencies] = {}
        self.hedges = 0
        self.hedges_won = 0

    @property
    def enabled(self) -> bool:
        return self._share_max > 0

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        return await self._hedged(
            "get",
            0,
            lambda: self.inner.get(key, bytes_max),
            lambda: self._second.get(key, bytes_max),
        )

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        return await self._hedged(
            "get_range",
            end - start,
            lambda: self.inner.get_range(key, start, end),
            lambda: self._second.get_range(key, start, end),
        )

    async def create(self, key: str, data: Buffer) -> None:
        await self._hedged(
            "create",
            len(data),
            lambda: self.inner.create(key, data),
            lambda: self._second.create(key, data),
        )

    async def _hedged(
        self,
        operation: Operation,
        size: int,
        first: Callable[[], Coroutine[Any, Any, T]],
        second: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        if not self.enabled:
            return await first()
        self._saved_hedges = min(SAVED_HEDGES_MAX, self._saved_hedges + self._share_max)
        # Sizes within a factor of 16 share a class.
        latencies = self._latencies.setdefault((operation, size.bit_length() // 4), Latencies())
        started = runtime.monotonic()
        race = _Race[T](first())
        try:
            delay_seconds = self._delay_seconds(latencies)
            await race.wait(delay_seconds)
            if race.undecided and delay_seconds is not None and self._saved_hedges >= 1:
                self._saved_hedges -= 1
                race.add(second())
            await race.decide(delay_seconds)
            result = race.result()
        finally:
            await race.end()
            self.hedges += race.hedge_sent
            self._saved_hedges += race.hedge_without_slot
        self.hedges_won += race.hedge_won
        latencies.add(runtime.monotonic() - started)
        return result

    def _delay_seconds(self, latencies: Latencies) -> float | None:
        if latencies.p95 is None:
            return None
        return max(self._floor_seconds, latencies.p95 * DELAY_FACTOR)


class _Race(Generic[T]):
    """One or two attempts at the same call."""

    def __init__(self, first: Coroutine[Any, Any, T]) -> None:
        self._tasks = [runtime.spawn(first)]

    def add(self, second: Coroutine[Any, Any, T]) -> None:
        self._tasks.append(runtime.spawn(second))

    @property
    def pending(self) -> list[asyncio.Task[T]]:
        return [task for task in self._tasks if not task.done()]

    @property
    def failures(self) -> list[BaseException]:
        return [
            failure
            for task in self._tasks
            if task.done() and (failure := _failure(task)) is not None
            # A hedge without a slot does not count as an attempt.
            if not isinstance(failure, NoFreeSlotError) or task is self._tasks[0]
        ]

    @property
    def winner(self) -> asyncio.Task[T] | None:
        """The successful attempt; the first one if both succeeded."""
        return next((task for task in self._tasks if task.done() and _failure(task) is None), None)

    @property
    def undecided(self) -> bool:
        """Whether the result of an attempt in flight still matters."""
        if self.winner is not None or not self.pending:
            return False
        # NotFoundError is as good as the object: either was true at some moment of the call.
        return not any(isinstance(failure, NotFoundError) for failure in self.failures)

    @property
    def hedge_without_slot(self) -> bool:
        return (
            len(self._tasks) > 1
            and self._tasks[1].done()
            and isinstance(_failure(self._tasks[1]), NoFreeSlotError)
        )

    @property
    def hedge_sent(self) -> bool:
        return len(self._tasks) > 1 and not self.hedge_without_slot

    @property
    def hedge_won(self) -> bool:
        return len(self._tasks) > 1 and self.winner is self._tasks[1]

    async def wait(self, seconds: float | None) -> None:
        """Wait until another attempt has ended, or for `seconds`."""
        await asyncio.wait(self.pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def decide(self, grace_seconds: float | None) -> None:
        while self.undecided:
            refused = any(isinstance(failure, ExistsError) for failure in self.failures)
            await self.wait(grace_seconds if refused else None)
            if refused:
                return

    def result(self) -> T:
        if self.winner is not None:
            return self.winner.result()
        specific = [fail for fail in self.failures if not isinstance(fail, _UNSPECIFIC)]
        unavailable = [fail for fail in self.failures if isinstance(fail, UnavailableError)]
        raise (specific or unavailable or self.failures)[0]

    async def end(self) -> None:
        """Cancel the losing attempt and wait for its end."""
        losers = self.pending
        for task in losers:
            task.cancel()
        if losers:
            await asyncio.wait(losers)
        for task in self._tasks:
            _failure(task)  # marks the exception as retrieved


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
