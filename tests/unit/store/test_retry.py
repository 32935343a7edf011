"""Retry: what is tried again, how often, after which pauses, and on whose budget."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    InvalidError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from neve.settings import StoreSettings
from neve.store.gate import NoFreeSlotError
from neve.store.memory import MemoryStore
from neve.store.port import OBJECT_BYTES_MAX
from neve.store.retry import Retry, RetryBudget

EXACT = StoreSettings(retry_jitter=0.0)


class Failing(MemoryStore):
    """Gets fail with the given errors in turn, then succeed; the times of all tries are kept."""

    def __init__(self, *errors: Exception, forever: Exception | None = None) -> None:
        super().__init__()
        self.errors = list(errors)
        self.forever = forever
        self.tried_at: list[float] = []

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        self.tried_at.append(runtime.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        if self.forever is not None:
            raise self.forever
        return memoryview(b"got")


def unavailable() -> UnavailableError:
    return UnavailableError("k", "503")


def pauses(store: Failing) -> list[float]:
    times = store.tried_at
    return [round(later - earlier, 6) for earlier, later in itertools.pairwise(times)]


def simulated(store: Failing, settings: StoreSettings, seed: int = 1) -> Any:
    async def scenario() -> bytes:
        return bytes(await Retry(store, settings).get("k"))

    return runtime.simulate(scenario(), seed=seed)


def test_passing_failures_are_retried_with_doubling_pauses() -> None:
    store = Failing(*(unavailable() for _ in range(5)))
    assert simulated(store, EXACT) == b"got"
    assert pauses(store) == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_pauses_are_capped() -> None:
    store = Failing(*(unavailable() for _ in range(5)))
    simulated(store, StoreSettings(retry_jitter=0.0, retry_cap_ms=300))
    assert pauses(store) == [0.1, 0.2, 0.3, 0.3, 0.3]


def test_pauses_are_jittered_by_the_share_set() -> None:
    seen = []
    for seed in range(50):
        store = Failing(unavailable())
        simulated(store, StoreSettings(retry_jitter=0.25), seed)
        seen += pauses(store)
    assert all(0.075 <= pause <= 0.1 for pause in seen)
    assert max(seen) - min(seen) > 0.015


def test_a_call_is_given_up_after_its_retries() -> None:
    store = Failing(forever=unavailable())
    with pytest.raises(UnavailableError):
        simulated(store, EXACT)
    assert len(store.tried_at) == 1 + EXACT.retry_attempts_max


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("k", "404"),
        ExistsError("k", "412"),
        ConflictError("k", "409"),
        StoreFailedError("k", "disk full"),
        InvalidError("bad key"),
        NoFreeSlotError("no slot"),
    ],
)
def test_what_does_not_pass_is_told_at_once(error: Exception) -> None:
    store = Failing(error)
    with pytest.raises(type(error)):
        simulated(store, EXACT)
    assert len(store.tried_at) == 1


def test_denied_is_retried_while_tokens_may_rotate() -> None:
    store = Failing(*(DeniedError("k", "403") for _ in range(7)))
    assert simulated(store, EXACT) == b"got"  # more often than retry_attempts_max


def test_denied_is_given_up_after_its_grace() -> None:
    store = Failing(forever=DeniedError("k", "403"))
    with pytest.raises(DeniedError):
        simulated(store, EXACT)
    assert store.tried_at[-1] == pytest.approx(10.0)
    store = Failing(forever=DeniedError("k", "403"))
    with pytest.raises(DeniedError):
        simulated(store, StoreSettings(denied_grace_ms=0))
    assert len(store.tried_at) == 1


def test_all_operations_are_retried() -> None:
    def fails_once(name: str) -> Callable[..., Any]:
        failed = []

        async def call(self: MemoryStore, *args: Any) -> Any:
            if not failed:
                failed.append(True)
                raise unavailable()
            return await getattr(MemoryStore, name)(self, *args)

        return call

    names = ("get", "get_range", "put", "create", "delete", "list")
    flaky = type("Flaky", (MemoryStore,), {name: fails_once(name) for name in names})

    async def scenario() -> None:
        retry = Retry(flaky(), EXACT)
        await retry.create("a", b"abc")
        await retry.put("b", b"xyz")
        assert await retry.get("a") == b"abc"
        assert await retry.get_ranges("b", [(1, 2)]) == [b"y"]
        assert [row.key for row in await retry.list("")] == ["a", "b"]
        await retry.delete("a")
        assert retry.retries == len(names)

    runtime.simulate(scenario(), seed=1)


def test_the_budget_is_shared_and_fills_again() -> None:
    async def scenario() -> None:
        budget = RetryBudget(per_second=2.0)  # saves up 20
        stores = [Failing(forever=unavailable()) for _ in range(30)]

        async def call(store: Failing) -> None:
            with pytest.raises(UnavailableError):
                await Retry(store, EXACT, budget).get("k")

        await runtime.gather(*(call(store) for store in stores))
        retries = sum(len(store.tried_at) - 1 for store in stores)
        assert 20 <= retries <= 20 + 2 * runtime.monotonic() + 1
        await runtime.sleep(100)
        late = Failing(forever=unavailable())
        await call(late)
        assert len(late.tried_at) == 1 + EXACT.retry_attempts_max

    runtime.simulate(scenario(), seed=1)


def test_no_budget_means_no_retries() -> None:
    store = Failing(forever=unavailable())
    with pytest.raises(UnavailableError):
        simulated(store, StoreSettings(retry_budget_per_second=0.0))
    assert len(store.tried_at) == 1
