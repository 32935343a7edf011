"""The checker finds every planted bug within a few kills: so its silence means something."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from soak.kill_loop import KillLoop
from soak.ledger import ViolationError
from soak.plan import Load, Moment, Plan, draw_plan
from soak.planted_broker import BUGS

SEED = 3
# Little of everything but of what the bug needs: each run is to be over in seconds.
LIGHT = Load(librdkafka_idempotent=1, librdkafka_plain=0, consumers=0, committers=0)
# An object is cut 20 ms after its first batch: others come to it, and a duplicate meets its first.
LINGER = {"wal.linger.ms": 20, "wal.object.bytes": 64 * 1024}
# An acknowledged record is missing, stands elsewhere, or is missed by what its producer sent next.
LOSS = "acknowledged|OUT_OF_ORDER_SEQUENCE_NUMBER"


def plan_for(bug: str, folder: Path) -> Plan:
    moments = [Moment("call", 5 + 3 * nth, "create wal", "before") for nth in range(8)]
    plan = draw_plan(SEED, folder, 0)
    plan = dataclasses.replace(
        plan, moments=moments, load=LIGHT, bug=bug, settings={**plan.settings, **LINGER}
    )
    if bug == "failed flush tells the second":
        # No kill is needed: a create that fails is, and nobody between that tries again.
        plan = dataclasses.replace(
            plan,
            moments=[Moment("seconds", 1.5)] * 8,
            faults={"fails": 0.2, "only": "create wal/"},
            may_end_by_itself=True,
            settings={**plan.settings, "store.retry.attempts.max": 0},
        )
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    with pytest.raises(ViolationError, match=LOSS) as found:
        KillLoop(plan_for(bug, tmp_path), tmp_path).run()
    print(found.value)


@pytest.mark.soak
def test_without_a_bug_the_same_passes(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_for("failed flush tells the second", tmp_path), bug="")
    KillLoop(dataclasses.replace(plan, moments=plan.moments[:2]), tmp_path).run()
