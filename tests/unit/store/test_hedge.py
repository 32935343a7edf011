"""Hedging: when a second request goes out, whose answer counts, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    ExistsError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from neve.settings import StoreSettings
from neve.store.gate import Gate
from neve.store.hedge import DELAY_FACTOR, Hedge
from neve.store.memory import MemoryStore
from neve.store.port import OBJECT_BYTES_MAX

ALWAYS = StoreSettings(hedge_share_max=1.0, hedge_floor_ms=0)
QUICK_SECONDS = 0.010
DELAY_SECONDS = QUICK_SECONDS * DELAY_FACTOR


class Timed(MemoryStore):
    """Each call takes the next of the given times and ends as told; quick where none is given."""

    def __init__(self) -> None:
        super().__init__()
        self.plan: list[tuple[float, Exception | None]] = []
        self.sent = 0
        self.cancelled = 0

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        number = await self._take()
        return memoryview(b"%d" % number)

    async def create(self, key: str, data: Any) -> None:
        await self._take()

    async def _take(self) -> int:
        self.sent += 1
        number = self.sent
        seconds, error = self.plan.pop(0) if self.plan else (QUICK_SECONDS, None)
        try:
            await runtime.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if error is not None:
            raise error
        return number


def hedged(
    scenario: Callable[[Timed, Hedge], Awaitable[Any]], settings: StoreSettings = ALWAYS
) -> Any:
    async def run() -> Any:
        store = Timed()
        hedge = Hedge(store, store, settings)
        for _ in range(64):
            await hedge.get("k")
            await hedge.create("k", b"x")
        store.sent = 0
        return await scenario(store, hedge)

    return runtime.simulate(run(), seed=1)


async def timed(work: Awaitable[Any]) -> tuple[Any, float]:
    started = runtime.monotonic()
    result = await work
    return result, round(runtime.monotonic() - started, 6)


def test_a_slow_get_is_sent_again_and_the_first_answer_wins() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(5.0, None), (0.002, None)]
        result, seconds = await timed(hedge.get("k"))
        assert (bytes(result), seconds) == (b"2", DELAY_SECONDS + 0.002)
        assert (store.sent, store.cancelled) == (2, 1)
        assert (hedge.hedges, hedge.hedges_won) == (1, 1)

    hedged(scenario)


def test_the_first_request_may_still_win() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(0.015, None), (5.0, None)]
        result, seconds = await timed(hedge.get("k"))
        assert (bytes(result), seconds) == (b"1", 0.015)
        assert (store.cancelled, hedge.hedges, hedge.hedges_won) == (1, 1, 0)

    hedged(scenario)


def test_quick_calls_are_not_hedged() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        for _ in range(100):
            await hedge.get("k")
        assert (store.sent, hedge.hedges) == (100, 0)

    hedged(scenario)


def test_nothing_is_hedged_before_enough_was_seen_or_when_turned_off() -> None:
    async def scenario(settings: StoreSettings, calls_before: int) -> int:
        store = Timed()
        hedge = Hedge(store, store, settings)
        for _ in range(calls_before):
            await hedge.get("k")
        store.plan = [(5.0, None)]
        await hedge.get("k")
        return hedge.hedges

    off = StoreSettings(hedge_enabled=False)
    assert runtime.simulate(scenario(ALWAYS, 31), seed=1) == 0
    assert runtime.simulate(scenario(ALWAYS, 32), seed=1) == 1
    assert runtime.simulate(scenario(off, 200), seed=1) == 0


def test_the_floor_holds_back_hedges() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(0.049, None)]
        await hedge.get("k")
        assert hedge.hedges == 0
        store.plan = [(0.051, None)]
        await hedge.get("k")
        assert hedge.hedges == 1

    hedged(scenario, StoreSettings(hedge_share_max=1.0, hedge_floor_ms=50))


def test_the_share_of_hedged_calls_is_bounded() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        for _ in range(200):
            # Slow now and then, so that the percentile stays low and all of these want a hedge.
            store.plan = [(5.0, None)]
            await hedge.get("slow")
            store.plan = []
            for _ in range(29):
                await hedge.get("quick")
        assert 55 <= hedge.hedges <= 65

    hedged(scenario, StoreSettings(hedge_share_max=0.01, hedge_floor_ms=0))


def test_many_calls_at_once_do_not_hedge_beyond_the_share() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(5.0, None)] * 100
        await runtime.gather(*(hedge.get("k") for _ in range(100)))
        assert 10 <= hedge.hedges <= 20

    hedged(scenario, StoreSettings(hedge_share_max=0.1, hedge_floor_ms=0))


def test_sizes_that_differ_much_do_not_set_each_others_pace() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(1.0, None)]
        await hedge.create("k", bytes(1 << 20))  # long, but the first of its size
        assert hedge.hedges == 0

    hedged(scenario)


def test_a_create_that_succeeds_in_either_attempt_succeeded() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        # The first landed and its answer is on its way; the hedge is refused because of it.
        store.plan = [(0.018, None), (0.002, ExistsError("k", "412"))]
        _, seconds = await timed(hedge.create("k", b"x"))
        assert seconds == 0.018
        # The other way round: the first attempt is refused by what the hedge wrote.
        store.plan = [(0.015, ExistsError("k", "412")), (0.006, None)]
        await hedge.create("k", b"x")

    hedged(scenario)


def test_a_refused_create_does_not_wait_for_an_answer_that_was_lost() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(30.0, None), (0.002, ExistsError("k", "412"))]
        started = runtime.monotonic()
        with pytest.raises(ExistsError):
            await hedge.create("k", b"x")
        assert runtime.monotonic() - started == pytest.approx(2 * DELAY_SECONDS + 0.002)
        assert store.cancelled == 1

    hedged(scenario)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (UnavailableError, ExistsError, ExistsError),
        (ExistsError, UnavailableError, ExistsError),
        (ConflictError, UnavailableError, UnavailableError),
        (ConflictError, ConflictError, ConflictError),
        (ConflictError, ExistsError, ExistsError),
        (UnavailableError, StoreFailedError, StoreFailedError),
    ],
)
def test_of_two_failures_the_more_telling_is_told(
    first: type[Exception], second: type[Exception], told: type[Exception]
) -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(0.016, first("k", "x")), (0.003, second("k", "x"))]  # type: ignore[call-arg]
        with pytest.raises(told):
            await hedge.create("k", b"x")
        store.plan = [(0.012, first("k", "x")), (0.007, second("k", "x"))]  # type: ignore[call-arg]
        with pytest.raises(told):
            await hedge.create("k", b"x")

    hedged(scenario)


def test_a_failed_attempt_leaves_the_other_its_chance() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        for error in (UnavailableError("k", "503"), ConflictError("k", "409")):
            store.plan = [(0.012, error), (0.050, None)]
            _, seconds = await timed(hedge.create("k", b"x"))
            assert seconds == pytest.approx(DELAY_SECONDS + 0.050)

    hedged(scenario)


def test_a_call_that_fails_early_is_not_hedged() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(0.001, UnavailableError("k", "503"))]
        with pytest.raises(UnavailableError):
            await hedge.get("k")
        assert (store.sent, hedge.hedges) == (1, 0)

    hedged(scenario)


def test_absence_is_an_answer() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(9.0, None), (0.001, NotFoundError("k", "404"))]
        started = runtime.monotonic()
        with pytest.raises(NotFoundError):
            await hedge.get("k")
        assert runtime.monotonic() - started < 0.02

    hedged(scenario)


def test_a_cancelled_call_ends_both_attempts() -> None:
    async def scenario(store: Timed, hedge: Hedge) -> None:
        store.plan = [(9.0, None), (9.0, None)]
        call = runtime.spawn(hedge.get("k"))
        await runtime.sleep(1)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert store.cancelled == 2

    hedged(scenario)


def test_a_hedge_takes_only_a_free_slot() -> None:
    async def scenario() -> None:
        store = Timed()
        gate = Gate(store, 1)
        hedge = Hedge(gate, gate.prefetching(), ALWAYS)
        for _ in range(64):
            await hedge.get("k")
        store.sent = 0
        store.plan = [(3.0, None)]
        result, seconds = await timed(hedge.get("k"))
        assert (bytes(result), seconds, store.sent) == (b"1", 3.0, 1)
        assert (hedge.hedges, gate.peak) == (0, 1)

    runtime.simulate(scenario(), seed=1)
