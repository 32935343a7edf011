"""What the hot path adds to."""

from __future__ import annotations

import pytest

from neve.broker.metrics import Latency, Metrics
from neve.broker.metrics.counters import BOUNDS_SECONDS


def test_bounds_ascend_from_microseconds_to_beyond_every_time_out() -> None:
    assert list(BOUNDS_SECONDS) == sorted(set(BOUNDS_SECONDS))
    assert (BOUNDS_SECONDS[0], BOUNDS_SECONDS[-1]) == (0.0001, 50.0)


def test_a_duration_counts_in_every_bucket_that_it_fits() -> None:
    latency = Latency()
    for seconds in (0.0, 0.0001, 0.00011, 50.0, 51.0):
        latency.add(seconds)
    buckets = dict(latency.buckets())
    assert buckets[0.0001] == 2
    assert buckets[0.00025] == buckets[25.0] == 3
    assert buckets[50.0] == 4
    assert buckets[float("inf")] == latency.count == 5
    assert latency.sum_seconds == pytest.approx(101.00021)


def test_requests_count_by_api_and_error() -> None:
    metrics = Metrics()
    metrics.request_completed(0, 0.001)
    metrics.request_completed(0, 0.001, 3)
    metrics.request_completed(0, 0.001, 3)
    metrics.request_completed(1, 0.5)
    assert metrics.apis[0].errors == {3: 2}
    assert (metrics.apis[0].without_error, metrics.apis[1].without_error) == (1, 1)


def test_ends_of_connections_count_by_reason() -> None:
    metrics = Metrics()
    metrics.closed("idle")
    metrics.closed("bad-request")
    metrics.closed("idle")
    assert metrics.closed_by_reason() == {"idle": 2, "bad-request": 1}


def test_the_hot_path_cannot_add_to_what_is_not_there() -> None:
    with pytest.raises(AttributeError):
        Metrics().produced_records = 1  # type: ignore[attr-defined]
