"""Hostile clients against a real broker with good clients beside them: the good ones are served.

`HOSTILE_SECONDS` sets how long each attack of the long run takes. A module with a list `ATTACKS`
takes part by being named here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from soak.hostile_run import Outcome, run_attack
from support import hostile_memory, hostile_time
from support.hostile_attacks import Attack

SECONDS = float(os.environ.get("HOSTILE_SECONDS") or 60)
SAMPLE_SECONDS = 3.0
SAMPLE_WAIT_SECONDS_MAX = 5.0
"""Other tests run beside the samples, on the same processors."""
SAMPLED = ("unread-small-fetches", "trickled-requests")

MODULES = (hostile_memory, hostile_time)
ATTACKS = [(each, module.__name__) for module in MODULES for each in module.ATTACKS]
SAMPLES = [(each, module) for each, module in ATTACKS if each.name in SAMPLED]


def check(outcome: Outcome) -> None:
    print(outcome)
    assert not outcome.violations, "\n".join([outcome.attack, *outcome.violations])


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "module"), SAMPLES, ids=str)
def test_a_sample(attack: Attack, module: str, tmp_path: Path) -> None:
    outcome = run_attack(
        attack, module, tmp_path, SAMPLE_SECONDS, wait_seconds_max=SAMPLE_WAIT_SECONDS_MAX
    )
    check(outcome)


@pytest.mark.soak
@pytest.mark.parametrize(("attack", "module"), ATTACKS, ids=str)
def test_an_attack(attack: Attack, module: str, tmp_path: Path) -> None:
    check(run_attack(attack, module, tmp_path, SECONDS))
