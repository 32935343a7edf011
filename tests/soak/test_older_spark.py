"""Neve with the newest PySpark of each older release line that docs/users/spark.md names.

Each has an environment of its own (`soak.older_spark`), and reads what a broker of this working
copy wrote. Where PyPI cannot be reached and none was made before, the test is skipped.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from neve.lake.pipeline.config import parse_config
from neve.lake.tables import catalog_of
from soak import older_spark_reads
from soak.older_spark import ROOT, OlderSpark
from soak.older_spark_reads import LIMIT, TOPIC, fingerprint
from support.spark_topics import BEGIN_MS, Sent, Topics

pytestmark = pytest.mark.soak
VERSIONS = ("4.1.4", "4.2.1")
"""The newest of 4.1 and of 4.2 on PyPI."""
WITHOUT_LIMITS = ("4.1.4",)
SCHEMA = {"id": "long", "customer": "string", "total": "double"}


def orders(first: int, count: int) -> list[Sent]:
    return [
        Sent(
            b"k%d" % (number % 5),
            json.dumps(
                {"id": number, "customer": f"c{number % 7} {'x' * 100}", "total": number / 4}
            ).encode(),
            (("n", b"%d" % number), ("none", None)) if number % 3 == 0 else (),
            BEGIN_MS + number * 1000,
        )
        for number in range(first, first + count)
    ]


def produce(topics: Topics, first: int) -> None:
    for partition in (0, 1):
        for start in range(0, 300, 50):
            topics.produce(TOPIC, partition, orders(first + 300 * partition + start, 50))


def reads(spark: OlderSpark, step: str, topics: Topics, folder: Path) -> dict[str, Any]:
    given = {
        "store": topics.store,
        "folder": str(folder / "spark"),
        "earlier": str(folder / "earlier"),
        "bootstrap": topics.broker.bootstrap,
    }
    printed = spark.output(str(older_spark_reads.__file__), step, json.dumps(given))
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert found["version"] == spark.version
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_spark_reads_the_same(version: str, tmp_path: Path) -> None:
    spark = OlderSpark(version)
    topics = Topics.start(tmp_path)
    try:
        topics.create(TOPIC, 2)
        topics.create("written", 2)
        produce(topics, 0)
        topics.stop()
        shutil.copytree(topics.folder, tmp_path / "earlier")
        topics = Topics(topics.folder, Topics.start(tmp_path).broker, topics.sent)
        check_first(reads(spark, "first", topics, tmp_path), topics, version)
        produce(topics, 600)
        check_second(reads(spark, "second", topics, tmp_path), topics)
        check_tables(spark, topics, tmp_path)
    finally:
        topics.stop()


def check_first(found: dict[str, Any], topics: Topics, version: str) -> None:
    sent = topics.of(TOPIC)
    everything = fingerprint(sent)
    assert everything["offsets"] == [[0, 0, 299], [1, 0, 299]]
    assert found["batch"] == found["stream"] == everything
    pushed = {place: row for place, row in sent.items() if place[0] == 1 and place[1] >= 100}
    assert found["pushed"]["found"] == fingerprint(pushed)
    assert "listed but missing" in found["pushed"]["without"]
    assert found["latest"] == []
    if version in WITHOUT_LIMITS:
        assert "maxOffsetsPerTrigger needs PySpark 4.2 or later" in found["limit"]
        assert found["batches"] == [600]
    else:
        assert found["limit"] == ""
        assert found["limits"] == [LIMIT] * 6


def check_second(found: dict[str, Any], topics: Topics) -> None:
    sent = topics.of(TOPIC)
    assert sum(found["batches"]) == 600
    assert found["again"] == []
    assert found["stream"] == fingerprint(sent)
    since = {place: row for place, row in sent.items() if place[1] >= 300}
    assert found["latest"] == fingerprint(since)
    assert found["written"] == 100
    assert "and the log ends at 300" in found["earlier"]  # whichever check is the first to see it
    assert "the stream is at offset 5000, and the log ends at 600" in found["beyond"]


def check_tables(spark: OlderSpark, topics: Topics, folder: Path) -> None:
    """`neve lake run` fills a table, and `neve sql` reads it and the topic, with their types."""
    value = {"format": "json", "schema": SCHEMA}
    pipeline = {"store": topics.store, "topics": [{"topic": TOPIC, "value": value}]}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    for _ in range(2):
        spark.output("-m", "neve.cli", "lake", "run", "-f", str(file), "--once")
    config = parse_config(pipeline)
    rows = catalog_of(config.catalog, config.store).load_table("lake.orders").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(1200))
    places = [(row["partition"], row["offset"]) for row in rows["_kafka"].to_pylist()]
    assert sorted(places) == sorted(topics.of(TOPIC))

    def asked(query: str) -> list[dict[str, Any]]:
        printed = spark.output("-m", "neve.cli", "sql", query, "--json", "--store", topics.store)
        return [json.loads(line) for line in printed.splitlines()]

    assert asked(
        "SELECT partition, count(*) AS n, max(offset) AS last, min(timestamp) AS since, "
        "sum(value:total::double) AS total FROM orders GROUP BY partition ORDER BY partition"
    ) == [
        {"partition": 0, "n": 600, "last": 599, "since": "2023-11-14T22:13:20Z", "total": 67425.0},
        {"partition": 1, "n": 600, "last": 599, "since": "2023-11-14T22:18:20Z", "total": 112425.0},
    ]
    assert asked(
        "SELECT o.offset, t.id, t.total FROM orders o JOIN lake.orders t "
        "ON o.partition = t._kafka.partition AND o.offset = t._kafka.offset "
        "WHERE t.id >= 597 AND t.id < 602 ORDER BY t.id"
    ) == [
        {"offset": 297, "id": 597, "total": 149.25},
        {"offset": 298, "id": 598, "total": 149.5},
        {"offset": 299, "id": 599, "total": 149.75},
        {"offset": 300, "id": 600, "total": 150.0},
        {"offset": 301, "id": 601, "total": 150.25},
    ]


def test_the_page_names_the_versions_that_are_run() -> None:
    page = (ROOT / "docs" / "users" / "spark.md").read_text(encoding="utf-8")
    assert all(version in page for version in VERSIONS)
