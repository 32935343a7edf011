"""A store that fails one call in five, answers SlowDown, or hangs; under load and at start-up.

Producers wait or are told to try again, fetches from memory and heartbeats do not notice, memory
stays within its bounds, and what was acknowledged is there afterwards.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.bad_store import MEMORY_BYTES_MAX, BadStore, Report, Trouble

# One call in five, some of which took effect all the same.
FAILS = {"fails": 0.15, "fails_after_effect": 0.05}
SLOW_DOWN = {"slow_down": 1.0}
HANGS = {"frozen": True}
SAMPLES = [Trouble(SLOW_DOWN, 2.0, 256), Trouble(HANGS, 3.0, 256), Trouble(FAILS, 1.0)]
LONG = [Trouble(SLOW_DOWN, 10.0, 256), Trouble(HANGS, 30.0, 256), Trouble(FAILS, 30.0)]
SEED = 11
ANSWER_SECONDS_MAX = 1.5
"""On two busy cores; the store's trouble lasts longer than this in every run."""
READY_SECONDS_MAX = 20.0
"""A store that fails only now and then does not keep a broker from starting."""


def check(report: Report) -> None:
    assert report.wrong == []
    assert report.heartbeats > 0
    assert report.fetches > 0
    assert report.heartbeat_seconds_max < ANSWER_SECONDS_MAX
    assert report.fetch_seconds_max < ANSWER_SECONDS_MAX
    assert report.revocations == 0, "a consumer lost its partitions"
    assert all(code.retriable for code in report.flood_refused), report.flood_refused
    assert report.memory_peak_bytes < MEMORY_BYTES_MAX


def serve(folder: Path, troubles: list[Trouble]) -> None:
    run = BadStore(folder, SEED, troubles, while_starting=False)
    run.run()
    for report in run.reports:
        print(report)
    for report in run.reports:
        check(report)


def start(folder: Path, troubles: list[Trouble]) -> None:
    run = BadStore(folder, SEED, troubles, while_starting=True)
    run.run()
    for report in run.reports:
        print(report)
    for report in run.reports:
        assert report.wrong == []
        if report.trouble.faults is FAILS:
            assert report.ready_seconds < READY_SECONDS_MAX


@pytest.mark.slow
def test_serving_for_a_moment(tmp_path: Path) -> None:
    serve(tmp_path, SAMPLES)


@pytest.mark.slow
def test_starting_for_a_moment(tmp_path: Path) -> None:
    start(tmp_path, SAMPLES)


@pytest.mark.soak
def test_serving(tmp_path: Path) -> None:
    serve(tmp_path, LONG)


@pytest.mark.soak
def test_starting(tmp_path: Path) -> None:
    start(tmp_path, LONG)
