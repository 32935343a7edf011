"""Counters and histograms."""

from __future__ import annotations

import contextlib
import json

import pytest

from neve import runtime
from neve.errors import ExistsError, NotFoundError
from neve.store.faults import FaultyStore, Latencies, Latency
from neve.store.memory import MemoryStore
from neve.store.meter import BOUNDS_SECONDS, Histogram, Meter


async def test_counts_by_operation_and_outcome() -> None:
    meter = Meter(MemoryStore())
    await meter.create("k", b"12345")
    with pytest.raises(ExistsError):
        await meter.create("k", b"123")
    await meter.put("k", memoryview(b"1234567"))
    await meter.get("k")
    await meter.get_ranges("k", [(0, 2), (3, 5)])
    with pytest.raises(NotFoundError):
        await meter.get("none")
    await meter.list("")
    await meter.delete("k")
    told = meter.snapshot()
    assert told["create"]["outcomes"] == {"exists": 1, "ok": 1}
    assert told["get"]["outcomes"] == {"not_found": 1, "ok": 1}
    assert (meter.calls("create"), meter.calls("create", "ok"), meter.calls("list")) == (2, 1, 1)
    assert (told["create"]["sent_bytes"], told["put"]["sent_bytes"]) == (8, 7)
    assert (told["get"]["received_bytes"], told["get_range"]["received_bytes"]) == (7, 5)
    assert told["get_range"]["latency"]["count"] == 1  # two near ranges are one request
    json.dumps(told)


def test_a_cancelled_call_is_counted() -> None:
    async def scenario() -> None:
        slow = FaultyStore(MemoryStore(), latencies=Latencies(get=Latency(1000, 2000)))
        meter = Meter(slow)
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(0.001):
                await meter.get("k")
        assert meter.snapshot()["get"]["outcomes"] == {"cancelled": 1}

    runtime.simulate(scenario(), seed=1)


def test_a_slow_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        slow = FaultyStore(MemoryStore(), latencies=Latencies(put=Latency(3000, 3000)))
        meter = Meter(slow, slow_seconds=2)
        await meter.put("k", b"1")
        await meter.get("k")

    runtime.simulate(scenario(), seed=1)
    (line,) = caplog.records
    assert (line.levelname, line.msg) == ("WARNING", "the store is slow")
    seconds = line.fields.pop("seconds")  # type: ignore[attr-defined]
    assert seconds == pytest.approx(3, abs=0.1)
    assert line.fields == {"operation": "put", "key": "k", "outcome": "ok"}  # type: ignore[attr-defined]


def test_quantiles_are_near() -> None:
    histogram = Histogram()
    for milliseconds in range(1, 1001):
        histogram.add(milliseconds / 1000)
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        assert share <= histogram.quantile(share) <= share * 2**0.5
    told = histogram.snapshot()
    assert told["count"] == told["buckets"][-1][1] == 1000
    assert told["max_seconds"] == 1.0
    assert told["sum_seconds"] == pytest.approx(500.5)
    assert [below for _, below in told["buckets"]] == sorted(below for _, below in told["buckets"])


def test_extremes_have_a_bucket() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) == 0.0
    histogram.add(0.0)
    histogram.add(10_000.0)
    assert histogram.quantile(1.0) == 10_000.0
    assert histogram.quantile(0.5) == BOUNDS_SECONDS[0]
