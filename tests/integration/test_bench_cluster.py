"""`neve bench cluster`, with small amounts: every figure is there, and means something."""

from __future__ import annotations

from typing import Any

import pytest

from neve.bench.cluster import measure
from neve.bench.kafka.measure import BenchError

SMALL = measure.Plan(failovers=1, tail_bytes=4_000_000, moved=6, seconds=2.0)
LONGEST_SECONDS = 60.0


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    steps = []
    result = measure.run(SMALL, on_progress=lambda done, total: steps.append((done, total)))
    assert steps == [(done, SMALL.steps) for done in range(SMALL.steps)]
    return result


@pytest.mark.soak
def test_every_figure_is_measured(measured: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in measured["rows"]}
    assert list(rows) == [bound.name for bound in measure.BOUNDS]
    assert measured["passed"] == all(row["ok"] for row in measured["rows"])
    for name in ("failover.kill", "failover.pause", "move.seconds", "replace.seconds"):
        assert 0 < rows[name]["median"] < LONGEST_SECONDS, rows[name]
    assert rows["failover.pause"]["median"] > measure.SESSION_MS / 1000
    assert rows["move.longest"]["median"] > 0
    assert rows["move.p99"]["median"] > 0
    # Brokers ping each other, and send each other no records.
    assert 0 < rows["peers.share"]["rounds"][0] < 0.01


def test_the_longest_of_several_decides() -> None:
    (bound,) = [each for each in measure.BOUNDS if each.name == "failover.kill"]
    row = measure.figure(bound, [1.0, 6.5, 2.0])
    assert (row["median"], row["rounds"], row["ok"]) == (6.5, [1.0, 6.5, 2.0], False)
    assert measure.figure(bound, [1.0, 5.5])["ok"]


@pytest.mark.parametrize("amount", ["failovers", "tail_bytes", "moved", "seconds"])
def test_nothing_is_not_measured(amount: str) -> None:
    with pytest.raises(BenchError, match="greater than 0"):
        measure.Plan(**{amount: 0})
