"""Exactly once into a table, whoever is killed when: `tests/soak/lake_loop.py` tells the story.

`SOAK_LAKE_RUNS` chooses how many runs there are, 30 without it; `SOAK_LAKE_SEED` the first seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from soak.duck import Duck
from soak.lake_loop import ACTS, KILLED, LakeLoop

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match:UserWarning")
RUNS = int(os.environ.get("SOAK_LAKE_RUNS") or 30)
FIRST_SEED = int(os.environ.get("SOAK_LAKE_SEED") or 1)


@pytest.mark.slow
def test_each_offset_is_in_the_table_once(tmp_path: Path) -> None:
    check_each_offset_is_there_once(tmp_path, seed=7, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RUNS))
def test_each_offset_is_in_the_table_once_in_many_runs(tmp_path: Path, seed: int) -> None:
    check_each_offset_is_there_once(tmp_path, seed, kills=5)


def check_each_offset_is_there_once(folder: Path, seed: int, kills: int) -> None:
    duck = Duck()  # before the run: the first one fetches it
    loop = LakeLoop(folder, seed, kills)
    loop.run()
    loop.check(duck)
    print(seed, dict(loop.counts))
    # Enough happened for that to say something.
    assert loop.counts["rows"] > 100
    assert loop.counts["letters"] > 5
    killed = {who: loop.counts[f"{who} killed"] for who in KILLED}
    assert all(killed.values()), loop.counts
    assert sum(killed.values()) == kills
    done = {act: loop.counts[f"{act} done"] for act in ACTS}
    assert all(done.values()), loop.counts
    assert sum(done.values()) == max(kills, len(ACTS))
