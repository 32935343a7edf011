"""Topics of a real broker into Iceberg tables, on Spark: what was produced is there once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from neve.cli import main
from neve.lake.pipeline.config import PipelineConfig, parse_config
from neve.lake.pipeline.runner import Pipeline
from neve.lake.pipeline.status import pipeline_status
from neve.lake.tables import catalog_of
from support.brokers import RunningBroker, start_broker
from support.lake_session import SPARK_TESTS, lake_session

pytestmark = [*SPARK_TESTS, pytest.mark.soak]
ORDERS = {"id": "long", "customer": "string", "total": "double"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("broker") / "bucket")


@pytest.fixture(scope="module")
def broker(bucket: str) -> Iterator[RunningBroker]:
    folder = Path(bucket)
    running = start_broker(
        folder, folder.parent / "log", segment_bytes=20_000, store_folder_fsync=False
    )
    yield running
    assert running.stop() == 0


def produce(broker: RunningBroker, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"k%d" % number, headers=[("n", b"%d" % number)])
    assert producer.flush(60) == 0


def order(number: int, **more: object) -> bytes:
    return json.dumps(
        {"id": number, "customer": f"c{number % 7}", "total": number / 4, **more}
    ).encode()


def pipeline(bucket: str, tmp_path: Path, **topic: object) -> PipelineConfig:
    return parse_config(
        {
            "store": bucket,
            "catalog": {"folder": str(tmp_path / "catalog"), "warehouse": str(tmp_path / "lake")},
            "task_size": "64KiB",
            "topics": [topic],
        }
    )


def rows_of(config: PipelineConfig, name: str) -> list[dict[str, Any]]:
    table = catalog_of(config.catalog, config.store).load_table(name)
    return table.scan().to_arrow().to_pylist()


def offsets_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["_kafka"]["partition"], row["_kafka"]["offset"]) for row in rows)


def test_every_record_is_in_the_table_once(
    spark: Any, broker: RunningBroker, bucket: str, tmp_path: Path
) -> None:
    produce(broker, "orders", [order(number) for number in range(3_000)])
    config = pipeline(bucket, tmp_path, topic="orders", value={"format": "json", "schema": ORDERS})
    with Pipeline(spark, config) as running:
        assert running.run_once()
        assert running.run_once()  # nothing new
        produce(broker, "orders", [order(number) for number in range(3_000, 3_500)])
        assert running.run_once()
    with Pipeline(spark, config) as again:  # a driver that starts anew knows where the table is
        assert again.run_once()
        assert again.reports[0].rows == 0
    rows = rows_of(config, "lake.orders")
    assert sorted(row["id"] for row in rows) == list(range(3_500))
    assert offsets_of(rows) == [(0, number) for number in range(3_500)]
    one = next(row for row in rows if row["id"] == 42)
    assert (one["customer"], one["total"], one["_kafka"]["key"]) == ("c0", 10.5, b"k42")
    assert one["_kafka"]["headers"] == [{"key": "n", "value": b"42"}]
    (status,) = pipeline_status(config)
    assert (status.rows, status.lag_records, status.error) == (3_500, 0, "")


def test_bad_values_are_dead_letters_and_new_fields_columns(
    spark: Any, broker: RunningBroker, bucket: str, tmp_path: Path
) -> None:
    values: list[bytes | None] = [
        order(0),
        b"{broken",
        None,
        order(3, coupon="SPRING"),
        json.dumps({"id": "not a number"}).encode(),
        b'{"id": 5}{"id": 6}',
        order(6),
        b"\xff\xfe",
    ]
    produce(broker, "mixed", values)
    config = pipeline(bucket, tmp_path, topic="mixed", value={"format": "json", "schema": ORDERS})
    with Pipeline(spark, config) as running:
        assert running.run_once()
        assert (running.reports[0].rows, running.reports[0].bad) == (4, 4)
    rows = {row["_kafka"]["offset"]: row for row in rows_of(config, "lake.mixed")}
    assert sorted(rows) == [0, 2, 3, 6]
    assert (rows[0]["coupon"], rows[3]["coupon"], rows[2]["id"]) == (None, "SPRING", None)
    letters = {row["offset"]: row for row in rows_of(config, "lake.mixed_dead_letters")}
    assert sorted(letters) == [1, 4, 5, 7]
    assert all(row["reason"] for row in letters.values())
    assert [letters[at]["value"] for at in (1, 4, 5, 7)] == [values[at] for at in (1, 4, 5, 7)]


def test_a_topic_that_is_not_there_keeps_no_other_waiting(
    spark: Any, broker: RunningBroker, bucket: str, tmp_path: Path
) -> None:
    produce(broker, "plain", [b"a", b"b"])
    config = parse_config(
        {
            "store": bucket,
            "catalog": {"folder": str(tmp_path / "catalog"), "warehouse": str(tmp_path / "lake")},
            "topics": [{"topic": "nowhere"}, {"topic": "plain", "on_error": "stop"}],
        }
    )
    with Pipeline(spark, config) as running:
        assert not running.run_once()
        assert "nowhere" in running.reports[0].failures[0]
    assert sorted(row["value"] for row in rows_of(config, "lake.plain")) == [b"a", b"b"]


def test_a_pipeline_that_begins_at_the_end_passes_nothing_by(
    spark: Any, broker: RunningBroker, bucket: str, tmp_path: Path
) -> None:
    produce(broker, "late", [b"old"] * 5)
    config = pipeline(bucket, tmp_path, topic="late", start="latest")
    with Pipeline(spark, config) as running:
        assert running.run_once()
    produce(broker, "late", [b"new"] * 3)  # while no pipeline runs
    with Pipeline(spark, config) as running:
        assert running.run_once()
    assert [row["value"] for row in rows_of(config, "lake.late")] == [b"new"] * 3


def test_the_command_tells_how_far_tables_have_come(
    spark: Any,
    broker: RunningBroker,
    bucket: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    produce(broker, "shown", [b"a"] * 10)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"store: {bucket}\ncatalog: {{folder: {tmp_path}/catalog, warehouse: {tmp_path}/lake}}\n"
        "topics: [{topic: shown}]\n"
    )
    assert main(["lake", "status", "-f", str(file), "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["lag_records"], row["rows"], row["last_commit_ms"]) == (10, 0, None)
    assert row["lag_seconds"] > 0
