"""Maintenance beside a loaded leader and its readers, from seeds."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.store.faults import Faults
from simulation.maintained import Life
from simulation.scenario import FAULTS

SAMPLE_SEEDS = 2
SOAK_SEEDS = 400
SOAK_CHUNK = 20
SECONDS = 14.0


def play(seed: int, faults: Faults | None = None) -> Life:
    life = Life(faults=faults or Faults())
    try:
        runtime.simulate(life.play(SECONDS), seed=seed)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, {life.counts}")
        raise
    return life


def check(life: Life) -> None:
    """A life in which hardly anything happened would show nothing."""
    least = {"produced": 120, "merged": 4, "expired": 1, "consumed": 8, "scanned": 4, "killed": 1}
    for what, count in least.items():
        assert life.counts.get(what, 0) >= count, (what, life.counts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SAMPLE_SEEDS))
def test_every_read_is_right_and_the_bucket_clean(seed: int) -> None:
    check(play(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_on_a_faulty_store_as_well(seed: int) -> None:
    play(seed, FAULTS)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, SOAK_CHUNK))
def test_hundreds_of_seeds(first: int) -> None:
    for seed in range(first, first + SOAK_CHUNK):
        play(seed, FAULTS if seed % 2 else None)
