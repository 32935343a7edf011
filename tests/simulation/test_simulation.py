"""Thousands of seeds of the real code on a faulty store."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neve import runtime
from neve.store.memory import MemoryStore
from simulation.scenario import SETTINGS, Plan, Report, run

OPERATIONS_LEAST = 1_000
FAULTS_LEAST = 50
SOAK_SEEDS = 2_000
SOAK_CHUNK = 50
SAMPLE_SEEDS = 6
SAMPLE_CHUNK = 2
WHOLE = Plan()
# As by default: what is small waits for the uploads under way.
JOINING = Plan(
    settings=dataclasses.replace(SETTINGS, wal=dataclasses.replace(SETTINGS.wal, linger_ms=-1))
)
JOINING_EVERY = 4
SHORT = Plan(batches=100)


def play(seed: int, plan: Plan = WHOLE) -> Report:
    async def scenario() -> Report:
        return await run(MemoryStore(), plan)

    return runtime.simulate(scenario(), seed=seed)


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            report = play(seed, WHOLE if seed % JOINING_EVERY else JOINING)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
        assert report.operations >= OPERATIONS_LEAST, (seed, report)
        assert report.faults >= FAULTS_LEAST, (seed, report)
        # A run in which hardly anything succeeds, or nobody takes over, would show nothing.
        assert report.acknowledged >= OPERATIONS_LEAST // 2, (seed, report)
        assert report.takeovers >= 1, (seed, report)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SAMPLE_SEEDS, SAMPLE_CHUNK))
def test_a_sample_of_seeds_keeps_every_promise(first: int):
    check_seeds(range(first, first + SAMPLE_CHUNK))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, SOAK_CHUNK))
def test_every_seed_keeps_every_promise(first: int):
    check_seeds(range(first, first + SOAK_CHUNK))


@pytest.mark.slow
def test_a_seed_replays_exactly():
    first = play(7, SHORT)
    assert play(7, SHORT) == first
    assert play(8, SHORT).digest != first.digest
    tests = Path(__file__).parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(tests)!r})\n"
        "from simulation.test_simulation import SHORT, play\n"
        "print(play(7, SHORT).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == first.digest
