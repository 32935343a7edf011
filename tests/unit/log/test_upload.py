"""Uploading a segment and its bundle: two creates side by side, each decided."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    StoreFailedError,
    UnavailableError,
)
from neve.log import create
from neve.log.segment.upload import upload_pair
from support.slow_store import SlowStore

SEGMENT, INDEX = b"the segment" * 100, b"the bundle"


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        runtime.simulate(test(), seed=1)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def upload(store: SlowStore, **options: Any) -> None:
    await upload_pair(store, "s.kfs", SEGMENT, "s.index", INDEX, **options)


def live_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def is_there(store: SlowStore) -> bool:
    return store.objects == {"s.kfs": SEGMENT, "s.index": INDEX}


@simulated
async def test_both_halves_go_at_once() -> None:
    store = SlowStore(latency=lambda: 0.1)
    await upload(store)
    assert is_there(store)
    assert runtime.monotonic() == 0.1
    assert store.calls == [("create", "s.kfs"), ("create", "s.index")]


@simulated
async def test_a_create_whose_answer_was_lost_is_our_success() -> None:
    store = SlowStore()
    store.lost_answers["s.kfs"].append(UnavailableError("s.kfs", "time-out"))
    await upload(store)
    assert is_there(store)
    assert [call for call in store.calls if call[1] == "s.kfs"] == [
        ("create", "s.kfs"),
        ("get_range", "s.kfs"),
    ]


@simulated
async def test_a_key_with_other_bytes_is_an_error_that_names_it() -> None:
    store = SlowStore({"s.index": b"somebody else's"})
    with pytest.raises(
        ExistsError, match=r"s\.index: another object has this key, not ours of 10 bytes"
    ):
        await upload(store)
    assert store.objects == {"s.kfs": SEGMENT, "s.index": b"somebody else's"}


@simulated
async def test_a_torn_read_of_our_own_object_is_not_taken_for_another() -> None:
    store = SlowStore({"s.index": INDEX})
    # Nothing happens to the create; the first read back is torn.
    store.faults["s.index"].extend([lambda data: data, lambda data: data[:4]])
    await upload(store)
    assert is_there(store)


@simulated
async def test_undecided_creates_are_tried_again_with_backoff() -> None:
    store = SlowStore(latency=lambda: 0.0)
    store.faults["s.kfs"].extend(
        [
            ConflictError("s.kfs", "409"),
            UnavailableError("s.kfs", "503"),
            ExistsError("s.kfs", "refused although nothing is there"),
        ]
    )
    await upload(store)
    assert is_there(store)
    creates = store.times["s.kfs"]
    # A conflict and a look that fails, a refusal and a look that finds nothing, then success.
    assert len(creates) == 5
    assert 0.0375 <= creates[2] - creates[1] <= 0.05
    assert 0.075 <= creates[4] - creates[3] <= 0.1


@simulated
async def test_what_stays_undecided_is_given_up_within_the_bound() -> None:
    store = SlowStore()
    store.always["s.index"] = UnavailableError("s.index", "503")
    with pytest.raises(UnavailableError, match=r"s\.index: could not be written"):
        await upload(store)
    assert create.UNDECIDED_SECONDS_MAX < runtime.monotonic() < 1.2 * create.UNDECIDED_SECONDS_MAX
    assert store.objects == {"s.kfs": SEGMENT}


@simulated
async def test_the_other_half_is_awaited_before_a_failure_is_raised() -> None:
    latencies = iter([5.0, 0.1])
    store = SlowStore(latency=lambda: next(latencies))
    store.always["s.index"] = StoreFailedError("s.index", "disk full")
    with pytest.raises(StoreFailedError, match="disk full"):
        await upload(store)
    assert runtime.monotonic() == 5.0
    # The orphan stays: it is never listed, and only the collector removes it.
    assert store.objects == {"s.kfs": SEGMENT}
    assert store.count("delete") == 0
    assert not live_tasks()


@simulated
async def test_both_failures_are_told() -> None:
    store = SlowStore()
    store.always["s.kfs"] = DeniedError("s.kfs", "403")
    store.always["s.index"] = StoreFailedError("s.index", "disk full")
    with pytest.raises(DeniedError) as raised:
        await upload(store)
    assert raised.value.__notes__ == ["and s.index: disk full"]


@simulated
async def test_a_cancelled_upload_leaves_no_task() -> None:
    store = SlowStore(latency=lambda: 10.0)
    task = runtime.spawn(upload(store))
    await runtime.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.in_flight == 0
    assert not live_tasks()


@simulated
async def test_a_half_that_somebody_cancelled_is_an_error() -> None:
    store = SlowStore(latency=lambda: 10.0)
    task = runtime.spawn(upload(store))
    await runtime.sleep(1)
    (half,) = [task for task in live_tasks() if task.get_name() == "upload s.index"]
    half.cancel()
    with pytest.raises(UnavailableError, match=r"s\.index: its upload was cancelled"):
        await task


async def _pair_ratios() -> tuple[float, float]:
    """The pair's time over the slower of its two PUTs, and over one after the other."""
    sigma = math.log(10) / statistics.NormalDist().inv_cdf(0.99)
    drawn = [runtime.chance().lognormvariate(math.log(0.02), sigma) for _ in range(2)]
    latencies = iter(drawn)
    start = runtime.monotonic()
    await upload(SlowStore(latency=lambda: next(latencies)))
    took = runtime.monotonic() - start
    return took / max(drawn), took / sum(drawn)


def test_a_pair_takes_as_long_as_its_slower_half() -> None:
    ratios = [runtime.simulate(_pair_ratios(), seed=seed) for seed in range(200)]
    assert statistics.median(slower for slower, _ in ratios) <= 1.1
    assert statistics.median(serial for _, serial in ratios) <= 0.75
