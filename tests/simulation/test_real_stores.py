"""The same scenario on stores that are really there: a folder, moto's S3, SeaweedFS's S3."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from neve import runtime
from neve.runtime.context import world
from neve.settings import StoreSettings
from neve.store.faults import Latencies
from neve.store.port import Store
from neve.store.url import open_store
from simulation.scenario import FAULTS, SETTINGS, Plan, Report, run
from support.servers import S3Server, moto_s3, seaweed_s3  # noqa: F401 (fixtures)

# Real requests take real time: fewer batches, and late effects that come sooner.
PLAN = Plan(
    faults=dataclasses.replace(FAULTS, late_ms_max=1_000, after_delete_ms_max=2_000),
    latencies=Latencies(),
    producers=4,
    batches=60,
    settings=dataclasses.replace(
        SETTINGS, store=dataclasses.replace(SETTINGS.store, request_timeout_ms=1_500)
    ),
)


SHORT = dataclasses.replace(PLAN, batches=25)


def check(store: Store, seed: int, plan: Plan = PLAN) -> None:
    """Chance comes from the seed; time does not, so a run does not replay exactly."""

    async def scenario() -> Report:
        world.set(dataclasses.replace(world.get(), chance=random.Random(seed)))
        return await run(store, plan)

    report = runtime.run(scenario())
    print(report)
    assert report.operations >= plan.producers * plan.batches
    assert report.faults > 0
    assert report.acknowledged > 0


@pytest.mark.slow
def test_on_a_folder(tmp_path: Path):
    check(open_store(str(tmp_path), StoreSettings()), 1)


@pytest.mark.slow
def test_on_moto(moto_s3: S3Server):  # noqa: F811
    check(open_store(f"s3://{moto_s3.new_bucket()}", moto_s3.settings()), 1, SHORT)


@pytest.mark.slow
def test_on_seaweedfs(seaweed_s3: S3Server):  # noqa: F811
    check(open_store(f"s3://{seaweed_s3.new_bucket()}", seaweed_s3.settings()), 1, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_on_a_folder_at_length(tmp_path: Path, seed: int):
    check(open_store(str(tmp_path), StoreSettings()), seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 11))
def test_on_moto_at_length(moto_s3: S3Server, seed: int):  # noqa: F811
    check(open_store(f"s3://{moto_s3.new_bucket()}", moto_s3.settings()), seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 11))
def test_on_seaweedfs_at_length(seaweed_s3: S3Server, seed: int):  # noqa: F811
    check(open_store(f"s3://{seaweed_s3.new_bucket()}", seaweed_s3.settings()), seed)
