"""Percentiles, rates and sizes of loads."""

from __future__ import annotations

import pytest

from neve.bench.kafka.measure import Stopwatch, latencies, throughput
from neve.bench.kafka.produce import Load
from neve.cli.bench_kafka import parse_bytes
from neve.cli.output import UsageError


def test_percentiles_are_samples() -> None:
    seconds = [n / 1000 for n in range(1000, 0, -1)]
    assert latencies(seconds) == {
        "samples": 1000,
        "p50": 500.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 1000.0,
    }
    assert latencies([0.002]) == {"samples": 1, "p50": 2.0, "p99": 2.0, "p99.9": 2.0, "max": 2.0}
    assert latencies([]) == {"samples": 0}


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch()
    monkeypatch.setattr(watch, "seconds", lambda: 2.0)
    found = throughput(1000, 3_000_000, watch)
    assert (found["mb_per_second"], found["records_per_second"], found["seconds"]) == (1.5, 500, 2)


def test_a_load_counts_bytes_as_records() -> None:
    assert Load(size=10_000, value_bytes=1000).records_max == 10
    assert Load(size=1, value_bytes=1000).records_max == 1
    assert Load(records=7).records_max == 7
    assert Load(seconds=1).records_max is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64MB", 64_000_000), ("1GiB", 2**30), ("2 k", 2000), ("5B", 5)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes("--bytes", text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5GB", "many", "1XB", "1bb"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="must be a size"):
        parse_bytes("--bytes", text)
