"""The checker finds every planted bug: so its silence means something."""

from __future__ import annotations

import dataclasses

import pytest

from neve import runtime
from neve.errors import NeveError
from neve.store.memory import MemoryStore
from simulation.planted import BUGS
from simulation.scenario import FAULTS, Plan, run

SEEDS_MOST = 200
FIRST_SEED = 2  # finds most of them
# Some bugs need a call that fails in spite of its retries: here more do.
PLAN = Plan(faults=dataclasses.replace(FAULTS, fails=0.06, slow_down=0.03))


def play(seed: int) -> None:
    async def scenario() -> None:
        await run(MemoryStore(), PLAN)

    runtime.simulate(scenario(), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str):
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_MOST):
        try:
            with BUGS[bug]():
                play(seed)
        except (AssertionError, NeveError) as found:  # a checker's violation, or a lost object
            print(f"{bug}: found with seed {seed}: {type(found).__name__}: {found}")
            return
    pytest.fail(f"{bug}: {SEEDS_MOST} seeds did not find it")


@pytest.mark.slow
def test_without_a_planted_bug_the_same_seed_passes():
    play(FIRST_SEED)
