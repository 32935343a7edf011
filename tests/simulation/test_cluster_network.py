"""Thousands of seeds of a whole cluster on the simulated network, and bugs that it must find."""

from __future__ import annotations

import pytest

from simulation.checker import ViolationError
from simulation.cluster_network import play
from simulation.network_plan import (
    ALL_EVENTS,
    ALL_FAULTS,
    ALL_OPERATIONS,
    WAL_STORE_EVENTS,
    Plan,
)
from simulation.planted_network import BUGS, LIKELY

SOAK_SEEDS, SOAK_CHUNK = 10_000, 50
SAMPLE_SEEDS, SAMPLE_CHUNK = 3, 1
WAL_STORE_SEEDS = 2
WITH_WAL_STORES = Plan(wal_stores=True, chaos=(*ALL_EVENTS, *WAL_STORE_EVENTS * 4))
SEEDS_MOST = 200
OPERATIONS_LEAST, FAULTS_LEAST = 1_500, 100
REPLAYED = Plan(batches=25)


def check_seeds(seeds: range, plan: Plan | None = None) -> dict[str, int]:
    """Play some seeds. Returns how often everything happened in all of them together."""
    counts: dict[str, int] = {}
    jumps = 0
    for seed in seeds:
        try:
            report, _ = play(seed, plan)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        # A run in which hardly anything happens would show nothing.
        assert report.operations >= OPERATIONS_LEAST, (seed, report)
        assert report.faults >= FAULTS_LEAST, (seed, report)
        for what, count in report.counts.items():
            counts[what] = counts.get(what, 0) + count
        jumps += report.jumps
    assert jumps, "no broker was away for longer than the cluster log keeps its numbers"
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SAMPLE_SEEDS, SAMPLE_CHUNK))
def test_a_sample_of_seeds_keeps_every_promise(first: int) -> None:
    counts = check_seeds(range(first, first + SAMPLE_CHUNK))
    assert set(ALL_OPERATIONS) <= set(counts)


@pytest.mark.slow
def test_a_sample_of_seeds_with_a_wal_store_for_each_rack_keeps_every_promise() -> None:
    counts = check_seeds(range(WAL_STORE_SEEDS), WITH_WAL_STORES)
    assert {*ALL_OPERATIONS, *WAL_STORE_EVENTS} <= set(counts)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, SOAK_CHUNK))
def test_every_seed_keeps_every_promise(first: int) -> None:
    counts = check_seeds(range(first, first + SOAK_CHUNK))
    assert {*ALL_EVENTS, *ALL_FAULTS, *ALL_OPERATIONS} <= set(counts)


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    assert play(3, REPLAYED) == play(3, REPLAYED)
    assert play(3, REPLAYED) != play(4, REPLAYED)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """A broken promise must show it: a run that only stalls does not count."""
    for seed in range(SEEDS_MOST):
        try:
            with BUGS[bug]():
                play(seed, LIKELY[bug])
        except ViolationError as found:
            print(f"{bug}: found with seed {seed}: {found}")
            return
    pytest.fail(f"{bug}: {SEEDS_MOST} seeds did not find it")
