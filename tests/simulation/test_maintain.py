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
# A life in which hardly anything happened would show nothing.
LEAST = {"produced": 120, "merged": 4, "expired": 1, "consumed": 8, "scanned": 4, "killed": 1}
LEAST_OF_ANY_SEED = {"produced": 1, "consumed": 1}


def check_life(seed: int, least: dict[str, int], faults: Faults | None = None) -> dict[str, int]:
    """Play it, which fails at a wrong read, at a lost record or at a bucket that is not clean."""
    life = Life(faults=faults or Faults())
    try:
        runtime.simulate(life.play(SECONDS), seed=seed)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, {life.counts}")
        raise
    for what, count in least.items():
        assert life.counts.get(what, 0) >= count, (what, seed, life.counts)
    return life.counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SAMPLE_SEEDS))
def test_every_read_is_right_and_the_bucket_clean(seed: int) -> None:
    check_life(seed, LEAST)


@pytest.mark.slow
def test_on_a_faulty_store_as_well() -> None:
    check_life(0, LEAST_OF_ANY_SEED, FAULTS)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK_SEEDS, SOAK_CHUNK))
def test_hundreds_of_seeds(first: int) -> None:
    scanned = 0
    for seed in range(first, first + SOAK_CHUNK):
        counts = check_life(seed, LEAST_OF_ANY_SEED, FAULTS if seed % 2 else None)
        scanned += counts.get("scanned", 0)
    assert scanned >= 4 * SOAK_CHUNK  # a short life may end before its first scan has
