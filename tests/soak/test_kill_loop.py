"""kill -9 at random moments under load: nothing acknowledged is lost, doubled, moved or changed.

`SOAK_SEED` chooses the seed of the long run; without it, chance does. A failure names the seed and
the file with the history. The folder store runs without fsync: what a killed process has written is
in the system's hands and stays there, only a power cut would take it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from soak.kill_loop import KillLoop, Outcome
from soak.plan import RETAINED, draw_plan

SAMPLE_SEED, SAMPLE_KILLS, KILLS = 7, 8, 100


def check_that_it_happened(outcome: Outcome) -> None:
    """Silence means something only if there was something to hear."""
    for call in (
        "create wal",
        "create rollup",
        "create wal-checkpoint",
        "create segment",
        "create index",
        "create manifest",
        "delete wal",
        "delete segment",
    ):
        assert outcome.writes[call] > 0, f"no {call} was ever done"
    assert outcome.interrupted.total() > 0
    assert outcome.acks > 0
    assert outcome.commits > 0
    assert outcome.commit_checks > 0
    retained = {place: start for place, start in outcome.starts.items() if place.topic in RETAINED}
    assert any(retained.values()), f"retention took nothing: {retained}"


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    outcome = KillLoop(draw_plan(SAMPLE_SEED, tmp_path, SAMPLE_KILLS), tmp_path).run()
    print(outcome)
    assert outcome.kills == SAMPLE_KILLS
    check_that_it_happened(outcome)


@pytest.mark.soak
def test_a_hundred_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    outcome = KillLoop(draw_plan(seed, tmp_path, KILLS), tmp_path).run()
    print(outcome)
    assert outcome.kills == KILLS
    check_that_it_happened(outcome)
    assert outcome.killed_while_starting > 0
    for parts in (
        {"create wal"},
        {"create segment", "create index", "create manifest"},
        {"create rollup", "create wal-checkpoint", "delete wal"},
        {"delete segment", "delete index"},
    ):
        cut_off = sum(outcome.interrupted[part] for part in parts)
        assert cut_off > 0, f"no kill met {sorted(parts)} on its way: {outcome.interrupted}"


def test_a_plan_follows_from_its_seed(tmp_path: Path) -> None:
    assert draw_plan(5, tmp_path, 20) == draw_plan(5, tmp_path, 20)
    assert draw_plan(5, tmp_path, 20) != draw_plan(6, tmp_path, 20)
