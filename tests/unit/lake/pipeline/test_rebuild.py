"""Columns of integers whose values turn out to have fractions, rebuilt from the table's rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from neve import runtime
from neve.cli import main
from neve.errors import InvalidError
from neve.lake.pipeline.rebuild import rebuild_tables
from neve.lake.pipeline.replay import replay
from neve.lake.pipeline.runner import pipeline_catalog
from neve.lake.tables import (
    BusyTableError,
    CommitKind,
    MaintenancePolicy,
    commit,
    maintain,
    read_progress,
    table_ref,
    write_files,
)
from neve.lake.tables import table_rebuild as rebuilding_module
from neve.lake.tables.commit_outcome import FILE_AGE_MAX_MS
from neve.lake.tables.table_rebuild import rebuild
from unit.lake.pipeline.pipeline_scene import Scene

INFERRED = {"topic": "t", "value": {"format": "json"}}


def with_schema(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"topic": "t", "value": {"format": "json", "schema": schema}, **more}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A table of whole prices, and two dead letters with fractions."""
    made = Scene(tmp_path)
    made.produce("t", [{"price": 1, "name": "a"}, {"price": None}], partitions=2)
    with made.pipeline(INFERRED) as pipeline:
        assert pipeline.run_once()
        made.produce("t", [{"price": 1.5}, {"price": 3}, {"price": 2.25}], partitions=2)
        assert pipeline.run_once(), pipeline.reports
    yield made
    made.close()


@contextlib.contextmanager
def table_of(scene: Scene) -> Iterator[Table]:
    with contextlib.closing(pipeline_catalog(scene.config(INFERRED))) as catalog:
        yield catalog.load_table("lake.t")


def prices(scene: Scene) -> list[Any]:
    found = [row["price"] for row in scene.rows("t")]
    return sorted((each for each in found if each is not None), key=float)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("double", [1.0, 1.5, 2.25, 3.0]),
        ("decimal(21,2)", [Decimal(each) for each in ("1.00", "1.50", "2.25", "3.00")]),
    ],
)
def test_whole_numbers_become_what_the_file_says_and_the_letters_fit(
    scene: Scene, kind: str, expected: list[Any]
) -> None:
    config = scene.config(with_schema({"price": kind}))
    with table_of(scene) as table:
        before = (read_progress(table), [each.name for each in table.schema().fields])
        old = table.current_snapshot()
        (report,) = rebuild_tables(config)
        assert (list(report.types), report.rows) == (["price"], 3)
        assert (read_progress(table), [each.name for each in table.schema().fields]) == before
        assert old is not None
        assert len(table.scan(snapshot_id=old.snapshot_id).to_arrow()) == 3
    (replayed,) = replay(config)
    assert (replayed.replayed, replayed.left) == (2, 0)
    assert prices(scene) == expected
    scene.produce("t", [{"price": 4.5, "name": "b"}], partitions=2)
    with scene.pipeline(with_schema({"price": kind})) as pipeline:
        assert pipeline.run_once(), pipeline.reports
    assert float(prices(scene)[-1]) == 4.5
    assert {row["name"] for row in scene.rows("t")} == {"a", "b", None}
    with table_of(scene) as table:
        maintain(table, MaintenancePolicy(merge_files_least=2))
    assert len(prices(scene)) == 5


def test_again_there_is_nothing_to_do(scene: Scene) -> None:
    config = scene.config(with_schema({"price": "double"}))
    (dry,) = rebuild_tables(config, dry_run=True)
    assert (dry.types, dry.rows) == ({"price": "double"}, 0)
    assert rebuild_tables(config)[0].rows == 3
    with table_of(scene) as table:
        before = table.metadata_location
        assert rebuild_tables(config)[0].types == {}
        assert table.refresh().metadata_location == before


def test_fields_inside_of_others_are_rebuilt_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        scene.produce("t", [{"a": {"x": 1, "y": "s"}, "l": [{"z": [1, 2]}]}])
        with scene.pipeline(INFERRED) as pipeline:
            assert pipeline.run_once()
        schema = {"a": {"x": "double"}, "l": [{"z": ["decimal(30,1)"]}]}
        (report,) = rebuild_tables(scene.config(with_schema(schema)))
        assert list(report.types) == ["a.x", "l[].z[]"]
        (row,) = scene.rows("t")
        assert row["a"] == {"x": 1.0, "y": "s"}
        assert row["l"] == [{"z": [Decimal("1.0"), Decimal("2.0")]}]
    finally:
        scene.close()


def test_a_value_that_would_change_is_refused_and_nothing_is_done(scene: Scene) -> None:
    scene.produce("t", [{"price": 2**53 + 1}], partitions=2)
    with scene.pipeline(INFERRED) as pipeline:
        assert pipeline.run_once()
    with table_of(scene) as table:
        before = table.metadata_location
        with pytest.raises(InvalidError, match="choose a type that holds every value"):
            rebuild_tables(scene.config(with_schema({"price": "double"})))
        assert table.refresh().metadata_location == before
    assert rebuild_tables(scene.config(with_schema({"price": "decimal(38,2)"})))[0].rows == 4


@pytest.mark.parametrize("schema", [{"name": "long"}, {"price": "decimal(20,2)"}], ids=str)
def test_other_types_are_refused_with_the_way_out(scene: Scene, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match="fill another table"):
        rebuild_tables(scene.config(with_schema(schema)))


def test_a_column_that_the_table_is_partitioned_by_keeps_its_type(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        scene.produce("t", [{"price": 1}])
        with scene.pipeline({**INFERRED, "partition_by": ["bucket(4, price)"]}) as pipeline:
            assert pipeline.run_once()
        with pytest.raises(InvalidError, match="is partitioned or sorted by price"):
            rebuild_tables(scene.config(with_schema({"price": "double"})))
    finally:
        scene.close()


# --- beside others


def test_files_that_were_written_for_the_old_type_are_not_committed(scene: Scene) -> None:
    with table_of(scene) as table:
        rows = pa.RecordBatch.from_pylist([{"price": 7}])
        files = write_files(table_ref(table), [rows])
        progress = read_progress(table)
        moved = {
            topic_id: type(topic)(topic.topic, {**topic.offsets, 0: topic.offsets[0] + 1})
            for topic_id, topic in progress.items()
        }
        rebuild(table, {("price",): pa.float64()})
        outcome = commit(table, files, progress, moved)
        assert outcome.kind is CommitKind.STALE
        assert "got another type" in outcome.reason


def test_a_commit_in_between_goes_first_and_nothing_is_rebuilt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = rebuilding_module.attempt

    def overtaken(*given: Any) -> Any:
        scene.produce("t", [{"price": 9}], partitions=2)
        with scene.pipeline(INFERRED) as pipeline:
            assert pipeline.run_once()
        return original(*given)

    monkeypatch.setattr(rebuilding_module, "attempt", overtaken)
    with pytest.raises(BusyTableError, match="stop its pipeline"):
        rebuild_tables(scene.config(with_schema({"price": "double"})))
    assert prices(scene) == [1, 3, 9]


def test_files_old_enough_to_be_orphans_are_not_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = rebuilding_module.write_files

    def slow(*given: Any) -> Any:
        files = original(*given)
        later_ms = runtime.now_ms() + FILE_AGE_MAX_MS + 1
        monkeypatch.setattr("neve.runtime.now_ms", lambda: later_ms)
        return files

    monkeypatch.setattr(rebuilding_module, "write_files", slow)
    with table_of(scene) as table:
        before = table.metadata_location
        with pytest.raises(BusyTableError, match=r"removed as orphans.*run this again"):
            rebuild(table, {("price",): pa.float64()})
        assert table.refresh().metadata_location == before


def test_the_command_says_what_it_did(
    scene: Scene, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"store: {scene.url}\n"
        "topics: [{topic: t, value: {format: json, schema: {price: double}}}]\n"
        f"catalog: {{folder: {tmp_path}/catalog, warehouse: {tmp_path}/lake}}\n"
    )
    assert main(["lake", "rebuild", "-f", str(file), "--dry-run"]) == 0
    assert capfd.readouterr().out == "lake.t: price is double: would be rebuilt\n"
    assert main(["lake", "rebuild", "-f", str(file)]) == 0
    assert capfd.readouterr().out == "lake.t: price is double: 3 rows rewritten\n"
    assert main(["lake", "rebuild", "-f", str(file), "--topic", "t"]) == 0
    assert capfd.readouterr().out == "lake.t: nothing to do\n"
    assert main(["lake", "rebuild", "-f", str(file), "--topic", "x"]) == 1
