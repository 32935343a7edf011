"""Three brokers die, are paused and are cut off under load: nothing acknowledged is lost or moved.

`SOAK_SEED` chooses the seed of the long run; without it, chance does. A failure names the seed and
the file with the history.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from soak.cluster_loop import ClusterLoop, ClusterOutcome
from soak.cluster_plan import DRAWN_EVENTS, NODES, draw_plan
from soak.ledger import ViolationError
from support.servers import REGION, seaweedfs

SAMPLE_SEED, SAMPLE_SESSION_MS, SAMPLE_OUTAGE_SECONDS = 11, 1_500, 2.0
KILLS, OTHERS, SESSION_MS, OUTAGE_SECONDS = 30, 5, 3_000, 30.0


def on_a_folder(folder: Path) -> Iterator[dict[str, Any]]:
    yield {"store": str(folder / "bucket")}


def on_seaweedfs(_: Path) -> Iterator[dict[str, Any]]:
    with seaweedfs() as server:
        settings = {"store.endpoint": server.endpoint, "store.region": REGION}
        yield {"store": f"s3://{server.new_bucket()}", "store_pid": server.pid, **settings}


@pytest.fixture(params=[on_a_folder, on_seaweedfs], ids=["folder", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    opened: Callable[[Path], Iterator[dict[str, Any]]] = request.param
    yield from opened(tmp_path)


def check_that_it_happened(outcome: ClusterOutcome) -> None:
    """Silence means something only if there was something to hear."""
    assert set(outcome.events) == {"kill", *DRAWN_EVENTS}
    assert outcome.expired > 0
    assert outcome.acks > 0
    assert outcome.commits > 0
    assert outcome.probes > 0
    assert outcome.peer_connections > 0
    assert outcome.leaders > 1
    for call in ("create wal", "create rollup", "create segment", "create manifest", "delete wal"):
        assert outcome.writes[call] > 0, f"no {call} was ever done"


@pytest.mark.slow
def test_a_little_of_everything(tmp_path: Path) -> None:
    plan = draw_plan(
        SAMPLE_SEED,
        kills=1,
        others=1,
        session_ms=SAMPLE_SESSION_MS,
        outage_seconds=SAMPLE_OUTAGE_SECONDS,
    )
    outcome = ClusterLoop(plan, tmp_path, store=str(tmp_path / "bucket")).run()
    print(outcome)
    check_that_it_happened(outcome)


@pytest.mark.soak
def test_thirty_kills_of_each(tmp_path: Path, store: dict[str, Any]) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    plan = draw_plan(
        seed, kills=KILLS, others=OTHERS, session_ms=SESSION_MS, outage_seconds=OUTAGE_SECONDS
    )
    outcome = ClusterLoop(plan, tmp_path, **store).run()
    print(outcome)
    assert outcome.kills == len(NODES) * (KILLS + OTHERS)
    check_that_it_happened(outcome)


def test_a_plan_follows_from_its_seed() -> None:
    def drawn(seed: int) -> object:
        return draw_plan(seed, kills=2, others=1, session_ms=3_000, outage_seconds=1.0)

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


@pytest.mark.soak
@pytest.mark.parametrize("bug", ["ack before commit"])
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    """The checks find a loss: so their silence means something."""
    plan = draw_plan(
        SAMPLE_SEED,
        kills=4,
        others=0,
        session_ms=SAMPLE_SESSION_MS,
        outage_seconds=SAMPLE_OUTAGE_SECONDS,
    )
    # An object is cut long after its first batch, so that a kill meets some that wait.
    settings = {**plan.settings, "wal.linger.ms": 200, "wal.object.bytes": 1024 * 1024}
    plan = dataclasses.replace(plan, bug=bug, settings=settings)
    with pytest.raises(ViolationError, match=r"acknowledged|OUT_OF_ORDER_SEQUENCE_NUMBER"):
        ClusterLoop(plan, tmp_path, store=str(tmp_path / "bucket")).run()
