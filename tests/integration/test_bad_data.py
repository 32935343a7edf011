"""Bad values, batches and pairs, for everyone who reads: Spark, the lake, SQL and maintenance.

The good records arrive, the bad ones are dead letters or named in an error, other partitions go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from neve import runtime
from neve.bucket.maintain.jobs import Job, Outcome, plan_units
from neve.lake.pipeline.config import PipelineConfig, parse_config
from neve.lake.pipeline.runner import Pipeline
from neve.lake.pipeline.status import pipeline_status
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.jobs import run_maintenance
from neve.lake.spark.query.engine import Engine
from neve.lake.sql.errors import QueryFailedError, UnknownNameError
from neve.lake.tables import catalog_of
from neve.settings import load
from neve.store.url import connect
from support.hostile import lying, send
from support.lake_session import SPARK_TESTS, lake_session
from support.spark_topics import BEGIN_MS, Sent, Topics
from unit.lake.values.fake_registry import FakeRegistry

pytestmark = SPARK_TESTS

LARGE_BYTES = 20 * 1024 * 1024
LARGE = json.dumps({"id": 8, "text": "x" * LARGE_BYTES}).encode()
VALUES: dict[int, bytes] = {
    0: b'{"id": 0, "text": "good"}',
    1: b'{"id": 1, "text": "cut',
    2: b'{"id": "two", "text": "another type"}',
    3: b'{"id": 3, "text": "\xff"}',
    4: b'{"id": 4}{"id": 5}',
    5: b'{"id": 6, "text": "good"}',
    6: LARGE,
}
BAD_VALUES = {1, 2, 3, 4}
PAIRS = ("damaged", "no-index", "no-segment", "gone", "lying")
KNOWN_SCHEMA = 7
READABLE, ZSTD = ("no-index",), 4
RECORDS = 120


@dataclass(frozen=True)
class Bucket:
    """A folder that a broker has written and somebody has damaged; `before` is what was sent."""

    store: str
    topics: Topics

    @classmethod
    def of(cls, folder: Path, topic: str, values: list[bytes]) -> Bucket:
        """One with these values behind what a topic has already."""
        folder.mkdir(exist_ok=True)
        topics = Topics.start(folder)
        try:
            topics.ensure(topic)
            topics.produce(topic, 0, [Sent(None, value, (), BEGIN_MS) for value in values])
        finally:
            topics.stop()
        return cls(topics.store, topics)

    def truth(self, topic: str, partition: int) -> dict[int, bytes | None]:
        return {
            offset: sent.value
            for (number, offset), sent in self.topics.of(topic).items()
            if number == partition
        }


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    topics = Topics.start(
        tmp_path_factory.mktemp("topics"), segment_bytes=6_000, wal_tail_objects=100
    )
    try:
        segments = _filled(topics)
    finally:
        topics.stop()
    _damage(segments)
    return Bucket(topics.store, topics)


def _filled(topics: Topics) -> dict[str, list[Path]]:
    for topic in PAIRS:
        topics.create(topic, 2)
        for partition in (0, 1):
            for first in range(0, RECORDS, 20):
                topics.produce(topic, partition, [_sent(n) for n in range(first, first + 20)])
                if (topic, partition, first) == ("lying", 0, 40):
                    send(topics.broker, topic, lying(ZSTD, told=3, really=2))
    _produce_values(topics)
    topics.create("vanishing", 1)
    topics.produce("vanishing", 0, [_sent(0)])
    return _wait_for_segments(topics)


def _sent(number: int) -> Sent:
    value = json.dumps({"id": number, "text": "t" * 150}).encode()
    return Sent(b"k%d" % number, value, (), BEGIN_MS + number)


def _produce_values(topics: Topics) -> None:
    config = {"max.message.bytes": str(2 * LARGE_BYTES)}
    topics.admin.create_topics([NewTopic("values", 1, 1, config=config)])["values"].result(60)
    producer = Producer(
        {"bootstrap.servers": topics.broker.bootstrap, "message.max.bytes": 2 * LARGE_BYTES}
    )
    for value in VALUES.values():
        producer.produce("values", value, partition=0)
        assert producer.flush(60) == 0


def _wait_for_segments(topics: Topics) -> dict[str, list[Path]]:
    """Each pair topic's segments of partition 0, at least three of them."""
    for _ in range(300):
        found = {
            topic: sorted(topics.folder.glob(f"topics/{topic}.*/0000000000/*.kfs"))
            for topic in PAIRS
        }
        if all(len(files) >= 3 for files in found.values()):
            return found
        runtime.run(runtime.sleep(0.1))
    raise AssertionError(f"no segments: {found}")


def _damage(segments: dict[str, list[Path]]) -> None:
    """The second segment of partition 0, in four ways; what lies was produced so."""
    data = bytearray(segments["damaged"][1].read_bytes())
    data[len(data) // 2] ^= 0xFF
    segments["damaged"][1].write_bytes(data)
    _index_of(segments["no-index"][1]).unlink()
    segments["no-segment"][1].unlink()
    _index_of(segments["gone"][1]).unlink()
    segments["gone"][1].unlink()


def _index_of(segment: Path) -> Path:
    """Beside it, of the same first offset."""
    start = segment.name.split("-")[1]
    (found,) = segment.parent.glob(f"segment-{start}-*.index")
    return found


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


# --- Spark


def frame(spark: Any, bucket: Bucket, topic: str, partition: int) -> Any:
    asked = {"store": bucket.store, "assign": json.dumps({topic: [partition]})}
    return spark.read.format("neve").options(**asked).load()


def read(spark: Any, bucket: Bucket, topic: str, partition: int) -> dict[int, bytes | None]:
    rows = frame(spark, bucket, topic, partition).select("offset", "value").collect()
    return {row.offset: None if row.value is None else bytes(row.value) for row in rows}


def test_spark_reads_values_whatever_they_are(spark: Any, bucket: Bucket) -> None:
    assert read(spark, bucket, "values", 0) == VALUES


@pytest.mark.parametrize("topic", PAIRS)
def test_spark_reads_what_is_there_and_names_what_is_not(
    spark: Any, bucket: Bucket, topic: str
) -> None:
    assert read(spark, bucket, topic, 1) == bucket.truth(topic, 1)
    if topic in READABLE:
        assert read(spark, bucket, topic, 0) == bucket.truth(topic, 0)
        return
    with pytest.raises(Exception, match=rf"{topic}.*neve storage"):
        read(spark, bucket, topic, 0)


# --- SQL


@pytest.fixture(scope="module")
def engine(spark: Any, bucket: Bucket) -> Iterator[Engine]:
    with Engine(spark, StoreRef(bucket.store)) as made:
        yield made


def asked(engine: Engine, sql: str) -> list[tuple[Any, ...]]:
    batches = engine.execute(sql, tag="test").batches()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_sql_reads_fields_of_good_values_and_null_of_bad_ones(engine: Engine) -> None:
    found = asked(engine, "SELECT offset, value:id, length(value) FROM `values` ORDER BY offset")
    assert [(offset, size) for offset, _, size in found] == [
        (offset, len(value)) for offset, value in VALUES.items()
    ]
    ids = {offset: value for offset, value, _ in found}
    assert (ids[0], ids[1], ids[2], ids[5], ids[6]) == ("0", None, "two", "6", "8")


@pytest.mark.parametrize("topic", PAIRS)
def test_sql_answers_what_it_can_and_names_the_rest(
    engine: Engine, bucket: Bucket, topic: str
) -> None:
    of = f"SELECT count(*), sum(length(value)) FROM `{topic}` WHERE partition = "
    for partition in (0, 1):
        if partition == 0 and topic not in READABLE:
            with pytest.raises(QueryFailedError, match=rf"{topic}.*neve storage"):
                asked(engine, of + "0")
            continue
        truth = bucket.truth(topic, partition)
        size = sum(len(value or b"") for value in truth.values())
        assert asked(engine, f"{of}{partition}") == [(len(truth), size)]


# --- the lake


def pipeline(bucket: Bucket, folder: Path, *topics: dict[str, Any]) -> PipelineConfig:
    return parse_config(
        {
            "store": bucket.store,
            "catalog": {"folder": str(folder / "catalog"), "warehouse": str(folder / "lake")},
            "topics": list(topics),
        }
    )


def rows_of(config: PipelineConfig, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        catalog_of(config.catalog, config.store).load_table(f"lake.{name}").scan().to_arrow()
    ).to_pylist()
    return found


def offsets_of(config: PipelineConfig, name: str, partition: int) -> set[int]:
    places = [row["_kafka"] for row in rows_of(config, name)]
    return {place["offset"] for place in places if place["partition"] == partition}


def test_the_lake_puts_bad_values_aside(spark: Any, bucket: Bucket, tmp_path: Path) -> None:
    value = {"format": "json", "schema": {"id": "long", "text": "string"}}
    config = pipeline(bucket, tmp_path, {"topic": "values", "value": value})
    with Pipeline(spark, config) as running:
        assert running.run_once()
    assert offsets_of(config, "values", 0) == VALUES.keys() - BAD_VALUES
    large = next(row for row in rows_of(config, "values") if row["id"] == 8)
    assert len(large["text"]) == LARGE_BYTES
    letters = {row["offset"]: row for row in rows_of(config, "values_dead_letters")}
    assert {offset: row["value"] for offset, row in letters.items()} == {
        offset: VALUES[offset] for offset in BAD_VALUES
    }
    assert all(row["reason"] for row in letters.values())


def test_the_lake_begins_with_values_of_which_none_can_be_read(spark: Any, tmp_path: Path) -> None:
    made = Bucket.of(tmp_path, "hopeless", [b"{", b"["])
    config = pipeline(made, tmp_path, {"topic": "hopeless", "value": {"format": "json"}})
    with Pipeline(spark, config) as running:
        assert running.run_once()
        Bucket.of(tmp_path, "hopeless", [b'{"id": 1}'])
        assert running.run_once()
    assert [row["id"] for row in rows_of(config, "hopeless")] == [1]
    assert len(rows_of(config, "hopeless_dead_letters")) == 2


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    fields = [{"name": "id", "type": "long"}]
    made.add(KNOWN_SCHEMA, {"type": "record", "name": "order", "fields": fields})
    yield made
    made.close()


def test_the_lake_puts_unknown_schemas_aside(
    spark: Any, registry: FakeRegistry, tmp_path: Path
) -> None:
    values = [
        _framed(KNOWN_SCHEMA, b"\x02"),
        _framed(KNOWN_SCHEMA + 1, b"\x04"),
        b"\x00",
        b"\x01plain",
    ]
    made = Bucket.of(tmp_path, "avro", values)
    value = {"format": "avro", "registry": registry.url}
    config = pipeline(made, tmp_path, {"topic": "avro", "value": value})
    with Pipeline(spark, config) as running:
        assert running.run_once(), running.reports
    assert [row["id"] for row in rows_of(config, "avro")] == [1]
    letters = {row["offset"]: row for row in rows_of(config, "avro_dead_letters")}
    assert {offset: row["value"] for offset, row in letters.items()} == {
        offset: values[offset] for offset in (1, 2, 3)
    }
    assert str(KNOWN_SCHEMA + 1) in letters[1]["reason"]


def _framed(schema: int, body: bytes) -> bytes:
    return b"\x00" + schema.to_bytes(4, "big") + body


def test_the_lake_goes_on_beside_what_cannot_be_read(
    spark: Any, bucket: Bucket, tmp_path: Path
) -> None:
    wanted = [{"topic": topic, "value": {"format": "json"}} for topic in PAIRS]
    config = pipeline(bucket, tmp_path, *wanted)
    with Pipeline(spark, config) as running:
        assert not running.run_once()
        failures = {each.topic: each.failures for each in running.reports}
    for topic in PAIRS:
        table = topic.replace("-", "_")
        assert offsets_of(config, table, 1) == set(bucket.truth(topic, 1))
        held = offsets_of(config, table, 0)
        if topic in READABLE:
            assert held == set(bucket.truth(topic, 0))
            assert not failures[topic]
        else:
            assert held == set(range(len(held)))
            assert 0 < len(held) < RECORDS
            (failure,) = failures[topic]
            assert f"{topic}-0" in failure
            assert "neve storage" in failure
    told = {row.topic: row.error for row in pipeline_status(config)}
    assert all(bool(told[topic]) == (topic not in READABLE) for topic in PAIRS), told


# --- maintenance


def maintained(spark: Any, bucket: Bucket, kind: Any, **options: object) -> list[Outcome]:
    settings = load(flags={"store.folder.fsync": "false"})

    async def run() -> list[Outcome]:
        stacked = connect(bucket.store, settings.store)
        try:
            job = Job(kind, bucket.store, options=tuple(options.items()))
            units = await plan_units(stacked.store, job)
            return await run_maintenance(spark, job, units, tasks=2, on_progress=lambda *_: None)
        finally:
            await stacked.close()

    return runtime.run(run())


def test_maintenance_names_what_is_wrong_and_does_the_rest(spark: Any, bucket: Bucket) -> None:
    assert _wrong(spark, bucket) == {(topic, 0) for topic in PAIRS}
    built = maintained(spark, bucket, "build-index")
    made = {row.topic: len(row.result["built"]) for row in built if row.ok and row.result["built"]}
    assert made["no-index"] == 1
    wrong = _wrong(spark, bucket)
    assert wrong == {(topic, 0) for topic in PAIRS if topic not in READABLE}
    for row in maintained(spark, bucket, "merge"):
        if (row.topic, row.partition) not in wrong:
            assert row.ok, row
    for topic in PAIRS:
        assert read(spark, bucket, topic, 1) == bucket.truth(topic, 1)


def _wrong(spark: Any, bucket: Bucket) -> set[tuple[str, int]]:
    """Of the others, the broker may have been stopped while it uploaded one."""
    checked = maintained(spark, bucket, "verify", settle_seconds=0)
    return {(row.topic, row.partition) for row in checked if not row.ok and row.topic in PAIRS}


# --- a topic that goes away; the last test, since it needs a broker again


def test_a_topic_that_is_deleted_is_named(
    spark: Any, bucket: Bucket, engine: Engine, tmp_path: Path
) -> None:
    config = pipeline(bucket, tmp_path, {"topic": "vanishing"}, {"topic": "values"})
    with Pipeline(spark, config) as running:
        assert running.run_once(), running.reports
        again = Topics.start(Path(bucket.store).parent)
        again.delete("vanishing")
        again.stop()
        assert not running.run_once()
        gone, others = running.reports
    assert "vanishing" in gone.failures[0]
    assert not others.failures
    assert len(rows_of(config, "vanishing")) == 1
    assert len(rows_of(config, "values")) == len(VALUES)
    with pytest.raises(UnknownNameError, match="vanishing"):
        asked(engine, "SELECT * FROM vanishing")
    with pytest.raises(Exception, match="vanishing"):
        read(spark, bucket, "vanishing", 0)
