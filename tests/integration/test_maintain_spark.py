"""Maintenance as Spark jobs: partitions spread over tasks, beside a broker that has them open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.maintain.jobs import Job, Outcome, plan_units, settings_given
from neve.bucket.verify import Options, verify
from neve.lake.spark.jobs import run_maintenance
from neve.store.url import connect
from support import bucket_samples as samples
from support.bucket_samples import Writer, expected, shown
from support.lake_session import SPARK_TESTS, lake_session

pytestmark = [*SPARK_TESTS, pytest.mark.soak]

PARTITIONS = 5
SETTINGS = samples.settings(store__folder__fsync="false")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


async def _done(spark: Any, url: str, kind: Any, **options: object) -> list[Outcome]:
    stacked = connect(url, SETTINGS.store)
    try:
        given = settings_given(SETTINGS)
        job = Job(kind, url, settings=given, options=tuple(options.items()))
        units = await plan_units(stacked.store, job)
        told: list[tuple[int, int]] = []
        outcomes = await run_maintenance(
            spark, job, units, tasks=3, on_progress=lambda done, total: told.append((done, total))
        )
        assert told[-1] == (3, 3)
        assert [(row.topic, row.partition) for row in outcomes] == [
            (unit.topic, unit.partition) for unit in units
        ]
        return outcomes
    finally:
        await stacked.close()


async def _read(url: str) -> list[tuple[int, int, bytes]]:
    async with await AsyncBucket.connect(url, settings=SETTINGS) as bucket:
        return sorted(shown([row async for row in bucket.read("t")]))


async def _verified(url: str) -> bool:
    stacked = connect(url, SETTINGS.store)
    try:
        report = await verify(stacked.store, Options(probe=False, settle_seconds=0))
        assert report.ok, report.findings
        return report.ok
    finally:
        await stacked.close()


def test_jobs_on_spark_beside_a_live_leader(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "bucket")
    all_rows = sorted(row for at in range(PARTITIONS) for row in expected("t", at, 0, 80))

    async def run() -> None:
        writer = await Writer.start(url, chosen=SETTINGS)
        await samples.layered(writer, "t", PARTITIONS)
        index = next((tmp_path / "bucket").glob("topics/*/0000000002/*.index"))
        index.unlink()
        built = await _done(spark, url, "build-index")
        assert [len(row.result["built"]) for row in built] == [0, 0, 1, 0, 0]
        merged = await _done(spark, url, "merge")
        assert [row.result["merged"] for row in merged] == [2] * PARTITIONS
        assert all(row.ok for row in merged)
        assert await _read(url) == all_rows
        for partition in range(PARTITIONS):  # the leader sees what was done, and goes on
            assert len(await writer.segments("t", partition)) == 1
            await writer.node.leader("t", partition).log.tier()
        checked = await _done(spark, url, "verify", settle_seconds=0)
        assert all(row.ok for row in checked)
        await writer.node.topics.set_configs("t", {"retention.bytes": "1", "retention.ms": "-1"})
        expired = await _done(spark, url, "expire")
        assert all(row.result["start"] > 0 for row in expired)
        starts = {row.partition: row.result["start"] for row in expired}
        assert await _read(url) == [row for row in all_rows if row[1] >= starts[row[0]]]
        await writer.close()
        assert await _verified(url)

    runtime.run(run())


def test_one_partition_that_cannot_be_maintained_fails_alone(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "bucket")

    async def run() -> None:
        writer = await Writer.start(url, chosen=SETTINGS)
        await samples.layered(writer, "t", PARTITIONS)
        await writer.close()
        number = next((tmp_path / "bucket").glob("topics/*/manifest/0000000003/0*"))
        number.write_bytes(b"damaged")
        outcomes = await _done(spark, url, "merge")
        assert [row.ok for row in outcomes] == [at != 3 for at in range(PARTITIONS)]
        assert "damaged" in outcomes[3].error

    runtime.run(run())
