"""One topic on its way into its table, whatever its values and its table have been through."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from neve.bucket.sync_bucket import Bucket
from neve.errors import DamagedError
from neve.lake.pipeline import range_task
from neve.lake.tables import catalog_of, columns, read_progress, table_creation
from neve.lake.tables.columns import KAFKA_STRUCT
from unit.lake.pipeline.pipeline_scene import Scene
from unit.lake.values.fake_registry import FakeRegistry

JSON = {"format": "json"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


# --- fields that no column can be made for


ODD: list[dict[str, Any]] = [
    {"": 1},
    {"a": {"": 1}},
    {"_kafka": 1},
    {"_kafka.offset": 1},
    {"id.x": 1, "id": 1, "l": [1], "l.element": 2},
    {"_Kafka": 1},
    {"a": {"b": 1, "B": 2}},
]


@pytest.mark.parametrize("odd", [*ODD, {"ID": 1}, {"iD": {"x": 1}}], ids=str)
def test_a_field_without_a_place_makes_a_dead_letter(scene: Scene, odd: dict[str, Any]) -> None:
    scene.produce("t", [{"id": 1}])
    with scene.pipeline({"topic": "t", "value": JSON}) as pipeline:
        assert pipeline.run_once()
        scene.produce("t", [odd, {"id": 2}])
        assert pipeline.run_once(), pipeline.reports
        scene.produce("t", [{"id": 3, "new": 4}])
        assert pipeline.run_once(), pipeline.reports
    assert [(row["id"], row["_kafka"]["offset"]) for row in scene.rows("t")] == [
        (1, 0), (2, 2), (3, 3)
    ]  # fmt: skip
    assert "cannot get one" in scene.letters("t")[1]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_topic_may_begin_with_such_a_value(scene: Scene, odd: dict[str, Any]) -> None:
    scene.produce("t", [odd, {"id": 1}])
    with scene.pipeline({"topic": "t", "value": JSON}) as pipeline:
        assert pipeline.run_once(), pipeline.reports
    assert [row["id"] for row in scene.rows("t")] == [1]
    assert list(scene.letters("t")) == [0]


def test_a_given_schema_that_no_table_can_have_is_refused_by_name(scene: Scene) -> None:
    scene.produce("t", [{"id": 1}])
    value = {"format": "json", "schema": {"id": "long", "id.x": "long", "": "long"}}
    with scene.pipeline({"topic": "t", "value": value}) as pipeline:
        assert not pipeline.run_once()
        assert "value.schema: a table cannot have the columns ''" in pipeline.reports[0].failures[0]


def test_whole_numbers_before_fractions_in_one_portion_are_a_double(scene: Scene) -> None:
    scene.produce("t", [{"id": 1}], partitions=2)
    with scene.pipeline({"topic": "t", "value": JSON}) as pipeline:
        assert pipeline.run_once()
        scene.produce("t", [{"price": 1}, {"price": 1.5}], partitions=2)
        assert pipeline.run_once()
    assert sorted(row["price"] or 0 for row in scene.rows("t")) == [0, 1, 1.5]


# --- where a table begins and goes on


@pytest.mark.parametrize("value", [JSON, {"format": "raw"}])
def test_the_end_of_a_topic_that_is_empty_is_written_down(
    scene: Scene, value: dict[str, Any]
) -> None:
    scene.produce("t", [])
    with scene.pipeline({"topic": "t", "value": value, "start": "latest"}) as pipeline:
        assert pipeline.run_once()
        scene.produce("t", [{"id": 1}, {"id": 2}])
        assert pipeline.run_once()
    assert [row["_kafka"]["offset"] for row in scene.rows("t")] == [0, 1]


def _failing(
    monkeypatch: pytest.MonkeyPatch, partition: int, bounds: dict[str, int]
) -> contextlib.AbstractContextManager[None]:
    """Plan a partition with these bounds and a failure, as with a damaged stream."""
    original = Bucket.plan

    def torn(*args: Any, **more: Any) -> Any:
        plans = original(*args, **more)
        failed = replace(
            plans[partition], **bounds, spans=(), failure=DamagedError("wal/x", "torn")
        )
        return [*plans[:partition], failed, *plans[partition + 1 :]]

    @contextlib.contextmanager
    def patched() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "plan", torn)
            yield

    return patched()


@pytest.mark.parametrize("end", [0, 3])
def test_a_topic_does_not_begin_at_its_end_while_an_end_is_unknown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    scene.produce("t", [b"old"] * 8, partitions=2)
    with scene.pipeline({"topic": "t", "start": "latest"}) as pipeline:
        with _failing(monkeypatch, 0, {"end": end, "first": end, "stop": end}):
            assert not pipeline.run_once()
            assert "wal/x is damaged: torn" in pipeline.reports[0].failures[0]
        assert pipeline.run_once(), pipeline.reports
        scene.produce("t", [b"new"] * 8, partitions=2)
        assert pipeline.run_once(), pipeline.reports
    assert [row["value"] for row in scene.rows("t")] == [b"new"] * 8


def test_a_partition_that_fails_at_the_first_run_does_not_count_as_new_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that were removed before the table's first commit are no loss."""
    scene.produce("t", [b"a"] * 8, partitions=2)
    scene.forget("t", 0, 2)
    with scene.pipeline({"topic": "t"}) as pipeline:
        with _failing(monkeypatch, 0, {"end": 2, "first": 2, "stop": 2}):
            assert not pipeline.run_once()
        assert pipeline.run_once(), pipeline.reports
    origins = [row["_kafka"] for row in scene.rows("t")]
    found = sorted((origin["partition"], origin["offset"]) for origin in origins)
    assert found == [(0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_a_topic_that_is_made_again_while_it_is_planned_is_read_from_its_beginning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [b"old"] * 3)
    with scene.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
        _once_before(monkeypatch, Bucket, "plan", lambda: _made_again(scene))
        pipeline.run_once()
        assert pipeline.run_once(), pipeline.reports
    assert sorted(row["value"] for row in scene.rows("t")) == [b"new"] * 5 + [b"old"] * 3


def test_rows_of_a_topic_that_is_made_again_have_another_topic_id(scene: Scene) -> None:
    with scene.pipeline({"topic": "t", "value": JSON}) as pipeline:
        for number in range(2):
            if number:
                scene.delete("t")
            scene.produce("t", [{"id": number}, {"id": number}, b"?"], partitions=2)
            assert pipeline.run_once(), pipeline.reports
    names = ("topic_id", "partition", "offset")
    origins = [tuple(row["_kafka"][name] for name in names) for row in scene.rows("t")]
    assert len(origins) == len(set(origins)) == 4
    known = {row["topic_id"] for row in scene.rows("t_dead_letters")}
    assert {origin[0] for origin in origins} == known
    assert len(known) == 2


def test_a_table_without_topic_ids_gets_them_from_then_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_before = pa.struct([each for each in KAFKA_STRUCT if each.name != "topic_id"])
    scene.produce("t", [b"a"])
    with monkeypatch.context() as patch:
        for module in (columns, table_creation, range_task):
            patch.setattr(module, "KAFKA_STRUCT", of_before)
        with scene.pipeline({"topic": "t"}) as pipeline:
            assert pipeline.run_once(), pipeline.reports
    assert "topic_id" not in scene.rows("t")[0]["_kafka"]
    scene.produce("t", [b"b"])
    with scene.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once(), pipeline.reports
    first, second = (row["_kafka"]["topic_id"] for row in scene.rows("t"))
    assert first is None
    assert len(second) == 32


def _made_again(scene: Scene) -> None:
    scene.delete("t")
    scene.produce("t", [b"new"] * 5)


def _once_before(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, event: Callable[[], None]
) -> None:
    original = getattr(owner, name)

    def called(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        event()
        return original(*args, **more)

    monkeypatch.setattr(owner, name, called)


def test_a_table_that_is_dropped_is_made_anew(scene: Scene) -> None:
    scene.produce("t", [b"a", b"b"])
    with scene.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
        catalog = catalog_of(scene.config({"topic": "t"}).catalog, scene.url)
        catalog.drop_table("lake.t")
        assert pipeline.run_once(), pipeline.reports
        catalog.close()
    assert [row["value"] for row in scene.rows("t")] == [b"a", b"b"]


def test_a_partition_that_ends_before_the_table_keeps_no_other_from_going_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce("t", [b"a"] * 8, partitions=2)
    with scene.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
        scene.produce("t", [b"b"] * 8, partitions=2)
        original = Bucket.plan

        def put_back(*args: Any, **more: Any) -> Any:
            plans = original(*args, **more)
            cut = replace(plans[0], end=3, first=3, stop=3, spans=())
            return [cut, *plans[1:]]

        monkeypatch.setattr(Bucket, "plan", put_back)
        assert not pipeline.run_once()
        assert "t-0" in pipeline.reports[0].failures[0]
        assert "ends at offset 3, and the table has it up to 4" in pipeline.reports[0].failures[0]
    partitions = [row["_kafka"]["partition"] for row in scene.rows("t")]
    assert (partitions.count(0), partitions.count(1)) == (4, 8)


def test_nothing_is_twice_in_the_end(scene: Scene) -> None:
    scene.produce("t", [{"id": number} for number in range(10)], partitions=3)
    with scene.pipeline({"topic": "t", "value": JSON}) as one:
        assert one.run_once()
        with scene.pipeline({"topic": "t", "value": JSON}) as other:
            scene.produce("t", [{"id": number} for number in range(10, 20)], partitions=3)
            assert other.run_once()
            assert one.run_once()
    assert sorted(row["id"] for row in scene.rows("t")) == list(range(20))
    catalog = catalog_of(scene.config({"topic": "t"}).catalog, scene.url)
    (topic,) = read_progress(catalog.load_table("lake.t")).values()
    assert sum(topic.offsets.values()) == 20
    catalog.close()


# --- what records are


@pytest.mark.parametrize("timestamp", [1_700_000_000_000_000, 2**62, -(2**62), 253_402_300_800_000])
def test_a_time_that_no_calendar_has_stops_nothing(scene: Scene, timestamp: int) -> None:
    value = {"format": "json", "schema": {"id": "long"}}
    scene.produce("t", [{"id": 1}, b"{"], timestamp=timestamp)
    scene.produce("t", [{"id": 2}], timestamp=-1)
    with scene.pipeline({"topic": "t", "value": value}) as pipeline:
        assert pipeline.run_once(), pipeline.reports
    first, last = scene.rows("t")
    assert (first["id"], first["_kafka"]["timestamp"], last["id"]) == (1, None, 2)
    assert last["_kafka"]["timestamp"].year == 1969
    assert list(scene.letters("t")) == [1]


def test_a_writer_with_a_wider_type_widens_the_table(scene: Scene) -> None:
    registry = FakeRegistry()
    try:
        for schema_id, kind in ((1, "int"), (2, "long"), (3, "string")):
            fields = [{"name": "id", "type": kind}]
            registry.add(schema_id, {"type": "record", "name": "order", "fields": fields})
        value = {"format": "avro", "registry": registry.url}
        scene.produce("t", [b"\0\0\0\0\1\2"])
        with scene.pipeline({"topic": "t", "value": value}) as pipeline:
            assert pipeline.run_once(), pipeline.reports
            big = b"\x80\x80\x80\x80\x80\x80\x01"
            scene.produce("t", [b"\0\0\0\0\1\4", b"\0\0\0\0\2" + big, b"\0\0\0\0\3\2x"])
            assert pipeline.run_once(), pipeline.reports
    finally:
        registry.close()
    assert [row["id"] for row in scene.rows("t")] == [1, 2, 2**41]
    assert "string" in scene.letters("t")[3]


# --- places that cannot be passed


def stopping(scene: Scene) -> Any:
    value = {"format": "json", "schema": {"id": "long"}}
    return scene.pipeline(
        {"topic": "t", "value": value, "on_error": "stop"}, batch_size="1GB", task_size="1"
    )


def test_a_bad_value_stops_its_partition_at_it(scene: Scene) -> None:
    scene.produce("t", [{"id": 0}, {"id": 1}, {"id": 2}, {"id": 3}, b"{", {"id": 5}], partitions=2)
    with stopping(scene) as pipeline:
        assert not pipeline.run_once()
        (failure,) = pipeline.reports[0].failures
        assert "t-0: offset 2: " in failure
        assert "on_error is stop" in failure
    assert sorted(row["id"] for row in scene.rows("t")) == [0, 1, 2, 3, 5]


def test_what_lies_behind_a_place_that_cannot_be_passed_is_not_read_over_and_over(
    scene: Scene,
) -> None:
    scene.produce("t", [{"id": 0}, b"{"])
    for number in range(2, 8):
        scene.produce("t", [{"id": number}])
    with stopping(scene) as pipeline:
        assert not pipeline.run_once()
        files = set(scene.folder.glob("lake/**/*.parquet"))
        for _ in range(3):
            assert not pipeline.run_once()
            assert len(pipeline.reports[0].failures) == 1
        assert set(scene.folder.glob("lake/**/*.parquet")) == files
    assert [row["id"] for row in scene.rows("t")] == [0]
    with scene.pipeline({"topic": "t", "value": JSON}) as pipeline:  # with dead letters again
        assert pipeline.run_once(), pipeline.reports
    assert [row["id"] for row in scene.rows("t")] == [0, *range(2, 8)]
    assert list(scene.letters("t")) == [1]
