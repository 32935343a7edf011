"""A whole pipeline: when it stops, what it keeps in shape, and what is told of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neve.bucket.sync_bucket import Bucket
from neve.errors import DamagedError, InvalidError, LostRangeError
from neve.lake.pipeline import runner
from neve.lake.pipeline.config import parse_config
from neve.lake.pipeline.runner import Pipeline, maintenance_policy, pipeline_catalog
from neve.lake.pipeline.status import TopicStatus, pipeline_status
from neve.lake.tables import MaintenancePolicy, maintain
from neve.lake.tables.last_error import record_error
from unit.lake.pipeline.pipeline_scene import FakeSpark, Scene

ID = {"format": "json", "schema": {"id": "long"}}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_a_pipeline_that_is_told_to_stop_finishes_the_portion_at_hand(scene: Scene) -> None:
    for _ in range(6):
        scene.produce("t", [b"x" * 100])
    steps = []
    with scene.pipeline({"topic": "t"}, batch_size="1", task_size="1") as pipeline:
        pipeline.run(lambda: len(steps) >= 2, steps.append)
    assert [row["_kafka"]["offset"] for row in scene.rows("t")] == [0, 1]


def test_the_table_of_dead_letters_is_kept_in_shape(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [b"{"])
    kept: list[str] = []
    monkeypatch.setattr(runner, "maintain", lambda table, _policy: kept.append(table.name()[-1]))
    unmade = {"topic": "none", "value": {"format": "json"}}
    with scene.pipeline({"topic": "t", "value": ID}, unmade) as pipeline:
        pipeline.run_once()
        pipeline.maintain()
    assert kept == ["t", "t_dead_letters"]


def test_many_snapshots_may_be_kept(scene: Scene) -> None:
    config = scene.config({"topic": "t"}, maintenance={"keep_snapshots": 500})
    policy = maintenance_policy(config.maintenance)
    assert (policy.keep_snapshots_least, policy.keep_snapshots_most) == (500, 500)
    assert maintenance_policy(scene.config({"topic": "t"}).maintenance).keep_snapshots_most == 200


def test_the_catalog_is_reached_as_the_store_is(tmp_path: Path) -> None:
    config = parse_config(
        {
            "store": "s3://somewhere/prefix",
            "catalog": {"folder": str(tmp_path)},
            "settings": {"store.endpoint": "http://127.0.0.1:1", "store.region": "north"},
            "topics": [{"topic": "t"}],
        }
    )
    catalog = pipeline_catalog(config)
    assert catalog.properties["s3.endpoint"] == "http://127.0.0.1:1"
    assert catalog.properties["s3.region"] == "north"
    catalog.close()


def test_a_mistake_in_the_file_leaves_nothing_open(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    close = Bucket.close
    monkeypatch.setattr(Bucket, "close", lambda self: (closed.append(True), close(self)))
    config = scene.config({"topic": "t", "value": {"format": "json", "schema": "none.json"}})
    with pytest.raises(InvalidError, match=r"none\.json"):
        Pipeline(FakeSpark(), config)  # type: ignore[arg-type]
    assert closed == [True]


# --- status


def status(scene: Scene) -> TopicStatus:
    (found,) = pipeline_status(scene.config({"topic": "t", "value": ID}))
    return found


def test_what_cannot_be_read_hides_nothing_else(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [{"id": 1}, {"id": 2}, b"{"])
    with scene.pipeline({"topic": "t", "value": ID}) as pipeline:
        assert pipeline.run_once()
    scene.produce("t", [{"id": 3}])

    def damaged(*_: Any, **__: Any) -> Iterator[Any]:
        raise DamagedError("wal/x", "torn")

    catalog = pipeline_catalog(scene.config({"topic": "t"}))
    record_error(catalog.load_table("lake.t"), "an older one")
    catalog.close()
    assert (status(scene).error, bool(status(scene).error_ms)) == ("an older one", True)
    monkeypatch.setattr(Bucket, "read", lambda *a, **b: damaged())
    found = status(scene)
    assert (found.rows, found.dead_letters, found.lag_records) == (2, 1, 1)
    assert found.lag_seconds is None, "the age of that record is not known"
    assert "t-0: wal/x is damaged" in found.error
    assert found.error_ms is None, "that is when the older one was met"
    assert found.last_commit_ms


def test_a_merge_is_no_commit_of_the_pipeline(scene: Scene) -> None:
    with scene.pipeline({"topic": "t", "value": ID}) as pipeline:
        for number in range(2):
            scene.produce("t", [{"id": number}])
            assert pipeline.run_once()
    committed_ms = status(scene).last_commit_ms
    assert committed_ms
    with contextlib.closing(pipeline_catalog(scene.config({"topic": "t"}))) as catalog:
        table = catalog.load_table("lake.t")
        assert maintain(table, MaintenancePolicy(merge_files_least=2)).files_merged == 2
        merged = table.refresh().current_snapshot()
    assert merged is not None
    assert merged.timestamp_ms > committed_ms
    found = status(scene)
    assert (found.last_commit_ms, found.last_commit_before_ms) == (committed_ms, None)
    assert (found.committed, found.end) == (2, 2)


def test_a_topic_that_is_gone_leaves_its_table_to_tell_of(scene: Scene) -> None:
    scene.produce("t", [{"id": 1}])
    with scene.pipeline({"topic": "t", "value": ID}) as pipeline:
        assert pipeline.run_once()
    scene.delete("t")
    found = status(scene)
    assert (found.rows, found.files) == (1, 1)
    assert (found.lag_records, found.lag_seconds, found.end) == (None, None, None)
    assert "'t'" in found.error


def test_a_partition_that_cannot_be_seen_makes_the_lag_unknown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [{"id": number} for number in range(4)], partitions=2)
    original = Bucket.plan

    def torn(*args: Any, **more: Any) -> Any:
        first, second = original(*args, **more)
        cut = replace(first, end=0, first=0, stop=0, failure=DamagedError("x", "torn"))
        return [cut, second]

    monkeypatch.setattr(Bucket, "plan", torn)
    found = status(scene)
    assert (found.lag_records, found.lag_seconds, found.end) == (None, None, None)
    assert [each.lag for each in found.partitions or ()] == [None, 2]
    assert "torn" in found.error


def test_what_retention_removed_is_no_lag(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.produce("t", [{"id": number} for number in range(10)])
    original = Bucket.plan

    def begins_later(*args: Any, **more: Any) -> Any:
        return [replace(plan, start=6, first=6) for plan in original(*args, **more)]

    asked: list[Any] = []
    read = Bucket.read

    def noted(self: Bucket, *args: Any, from_offset: Any = None) -> Any:
        asked.append(from_offset)
        if from_offset is not None and from_offset < 6:
            raise LostRangeError("t-0: offsets 0 to 5 are lost")
        return read(self, *args, from_offset=from_offset)

    monkeypatch.setattr(Bucket, "plan", begins_later)
    monkeypatch.setattr(Bucket, "read", noted)
    found = status(scene)
    assert (found.lag_records, found.error, asked) == (4, "", [6])


def test_a_catalog_that_fails_is_told_for_each_topic(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [{"id": 1}])

    def silent(*_: Any) -> Any:
        raise OSError("no answer")

    monkeypatch.setattr("pyiceberg.catalog.sql.SqlCatalog.load_table", silent)
    found = status(scene)
    assert found.error == "its table cannot be read: no answer"
    assert (found.rows, found.files, found.dead_letters) == (None, None, None)
    assert (found.lag_records, found.lag_seconds, found.committed) == (None, None, None)
