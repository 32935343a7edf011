"""Thousands of seeds of a whole cluster on the simulated network, and bugs that it must find."""

from __future__ import annotations

import dataclasses

import pytest

from neve.errors import NeveError
from neve.store.faults import Latencies, Latency
from simulation.cluster_network import READ_FROM_FOLLOWER, SETTINGS, Plan, play
from simulation.planted_network import BUGS

SOAK_SEEDS, SOAK_CHUNK = 10_000, 100
SAMPLE_SEEDS, SAMPLE_CHUNK = 24, 8
SEEDS_MOST = 200
ACKNOWLEDGED_LEAST = 20
# More of what a bug needs, so that few seeds find it.
QUICK_TO_TIER = dataclasses.replace(
    SETTINGS,
    segment=dataclasses.replace(SETTINGS.segment, ms=300),
    wal=dataclasses.replace(SETTINGS.wal, tail_objects=8),
)
# A follower often looks for numbers that are not committed yet.
QUICK_TO_LOOK = dataclasses.replace(
    SETTINGS, cluster=dataclasses.replace(SETTINGS.cluster, follow_ms=100)
)
LIKELY = {
    "no seal": Plan(chaos=("pause", "shun"), calm_seconds=3.0),
    "manifest before the tail": Plan(
        chaos=("pause", "shun"),
        calm_seconds=2.0,
        settings=QUICK_TO_TIER,
        latencies=Latencies.of(write=Latency(8, 60), read=Latency(20, 300)),
        partitions=3,
    ),
    "resume while undecided": Plan(chaos=("hinder release",), calm_seconds=2.0),
    "follow out of order": Plan(
        chaos=("crash behind a gap",),
        calm_seconds=5.0,
        settings=QUICK_TO_LOOK,
        partitions=3,
        producers=4,
        near=3,
        batches=40,
    ),
    "answer without a look": Plan(chaos=("shun",), calm_seconds=2.0),
}


def check_seeds(seeds: range) -> None:
    events: set[str] = set()
    for seed in seeds:
        try:
            report, _ = play(seed)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        assert report.acknowledged >= ACKNOWLEDGED_LEAST, (seed, report)
        events |= set(report.events)
    # A run in which hardly anything happens would show nothing.
    assert len(events) >= len(Plan().chaos) // 2, events
    assert READ_FROM_FOLLOWER in events


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SAMPLE_SEEDS, SAMPLE_CHUNK))
def test_a_sample_of_seeds_keeps_every_promise(first: int) -> None:
    check_seeds(range(first, first + SAMPLE_CHUNK))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, SOAK_CHUNK))
def test_every_seed_keeps_every_promise(first: int) -> None:
    check_seeds(range(first, first + SOAK_CHUNK))


def test_a_seed_replays_exactly() -> None:
    assert play(3) == play(3)
    assert play(3) != play(4)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in range(SEEDS_MOST):
        try:
            with BUGS[bug]():
                play(seed, LIKELY.get(bug))
        except (AssertionError, NeveError) as found:
            print(f"{bug}: found with seed {seed}: {type(found).__name__}: {found}")
            return
    pytest.fail(f"{bug}: {SEEDS_MOST} seeds did not find it")
