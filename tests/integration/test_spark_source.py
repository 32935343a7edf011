"""Spark against truth: what real clients wrote is what `format("neve")` reads, and the reverse."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.query import allowed
from neve.lake.spark.query.engine import Engine
from neve.records import reference
from neve.records.crc import crc32c
from neve.records.reference import build_batch
from support.lake_session import SPARK_TESTS, lake_session
from support.spark_topics import BEGIN_MS, CODECS, Sent, Topics, rows_of, sample

pytestmark = SPARK_TESTS

DURING = "timestamp >= timestamp_millis({}) and timestamp < timestamp_millis({})"
PARTITIONS = 3
SLOW = 2
"""A partition with few records, which are rolled up and not tiered."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    made = Topics.start(tmp_path_factory.mktemp("topics"))
    try:
        made.create("truth", PARTITIONS)
        number = 0
        for _ in range(3):
            for codec in CODECS:
                for partition, count in ((0, 120), (1, 60), (SLOW, 2)):
                    size = 60 if codec == "none" else 600
                    rows = [sample(number + i, size) for i in range(count)]
                    made.produce("truth", partition, rows, codec)
                    number += count
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def loaded(spark: Any, topics: Topics, **options: object) -> Any:
    given = {"store": topics.store, "subscribe": "truth", "includeHeaders": "true"}
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("neve").options(**{**given, **texts}).load()


def test_every_record_of_every_layer_is_read_once(spark: Any, topics: Topics) -> None:
    keys = [str(path) for path in topics.folder.rglob("*") if path.is_file()]
    assert any("rollup" in key for key in keys), "the samples are to have a roll-up"
    with neve.open(topics.folder) as bucket:
        plans = bucket.plan("truth")
    assert plans[0].segments_planned >= 2
    assert plans[SLOW].spans
    assert all(span.tail for span in plans[SLOW].spans)
    frame = loaded(spark, topics)
    assert frame.count() == len(topics.of("truth"))
    assert rows_of(frame) == topics.of("truth")


def test_the_schema_is_that_of_sparks_kafka_source(spark: Any, topics: Topics) -> None:
    plain = loaded(spark, topics, includeHeaders="false")
    assert plain.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    whole = loaded(spark, topics).schema
    assert whole["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_a_schema_with_fewer_columns_reads_fewer(spark: Any, topics: Topics) -> None:
    frame = (
        spark.read.format("neve")
        .schema("offset long, timestampType int, partition int")
        .options(subscribe="truth")
        .load(topics.store)
    )
    found = {(row["partition"], row["offset"]) for row in frame.collect()}
    assert found == set(topics.of("truth"))
    with pytest.raises(Exception, match="the column 'offset' must be bigint"):
        spark.read.format("neve").schema("offset int").option("subscribe", "truth").load(
            topics.store
        ).count()


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("offset >= 100 and offset < 333", {"fromOffset": 100, "toOffset": 333}),
        (
            DURING.format(BEGIN_MS + 500, BEGIN_MS + 1500),
            {"fromTimestamp": BEGIN_MS + 500, "toTimestamp": BEGIN_MS + 1500},
        ),
        (
            f"topic = 'truth' and partition in (1, {SLOW}) and offset <= 40",
            {"partitions": f"1,{SLOW}", "toOffset": 41},
        ),
    ],
)
def test_pushed_down_filters_and_bounds_give_what_filters_afterwards_give(
    spark: Any, topics: Topics, condition: str, options: dict[str, object]
) -> None:
    afterwards = rows_of(loaded(spark, topics).where(condition))
    assert 0 < len(afterwards) < len(topics.of("truth"))
    assert rows_of(loaded(spark, topics, pushFilters="true").where(condition)) == afterwards
    assert rows_of(loaded(spark, topics, **options)) == afterwards


def test_what_is_pruned_is_not_read(spark: Any, topics: Topics) -> None:
    with neve.open(topics.folder) as bucket:
        (plan,) = bucket.plan("truth", 0, from_offset=1000)
        (needed,) = bucket.plan("truth", 0)
        first = needed.spans[0]
    assert plan.segments_pruned > 0
    (segment,) = topics.folder.glob(f"topics/truth.*/*0/segment-{first.first:020d}*.kfs")
    away = segment.with_suffix(".away")
    segment.rename(away)
    try:
        wanted = f"offset >= {first.end} and partition = 0"
        kept = loaded(spark, topics, pushFilters="true").where(wanted)
        assert kept.count() == sum(p == 0 and o >= first.end for p, o in topics.of("truth"))
        with pytest.raises(Exception, match="listed but missing"):
            loaded(spark, topics).where(wanted).count()
    finally:
        away.rename(segment)


def test_explain_shows_what_a_query_prunes(spark: Any, topics: Topics) -> None:
    query = "SELECT offset FROM truth WHERE partition = 0 AND offset >= 1700"
    with Engine(spark, StoreRef(topics.store)) as engine:
        (pruned,) = engine.explain(query).relations
        shown = pa.Table.from_batches(engine.execute(f"EXPLAIN {query}", tag="shown").batches())
        found = pa.Table.from_batches(engine.execute(query, tag="found").batches())
    assert pruned.pruned > 0
    assert f"{pruned.planned} planned, {pruned.pruned} pruned" in "\n".join(shown[0].to_pylist())
    wanted = [offset for partition, offset in topics.of("truth") if partition == 0]
    assert sorted(found["offset"].to_pylist()) == [each for each in sorted(wanted) if each >= 1700]


def test_a_filter_does_not_stay_with_the_frame(spark: Any, topics: Topics) -> None:
    frame = loaded(spark, topics)
    everything = len(topics.of("truth"))
    assert frame.where("offset < 5").count() == 5 * PARTITIONS
    assert frame.count() == everything
    low, high = frame.where("offset < 5"), frame.where("offset >= 5")
    assert low.union(high).count() == everything


def test_where_a_read_begins_and_ends(spark: Any, topics: Topics) -> None:
    sent = topics.of("truth")
    start = {"truth": {"0": 30, "1": -2, "2": 5}}
    end = {"truth": {"0": 40, "1": 7, "2": -1}}
    found = rows_of(
        loaded(spark, topics, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    )
    wanted = {(0, o) for o in range(30, 40)} | {(1, o) for o in range(7)}
    wanted |= {place for place in sent if place[0] == 2 and place[1] >= 5}
    assert found == {place: sent[place] for place in wanted}
    # As Kafka answers: from the first record that is not older, up to the first such record.
    moment = BEGIN_MS + 400
    first = {p: min(o for (q, o), row in sent.items() if q == p and row.timestamp >= moment)
             for p in range(PARTITIONS)}  # fmt: skip
    early = rows_of(loaded(spark, topics, endingTimestamp=moment))
    late = rows_of(loaded(spark, topics, startingTimestamp=moment, minPartitions=7))
    assert set(early) == {(p, o) for p, o in sent if o < first[p]}
    assert set(late) == {(p, o) for p, o in sent if o >= first[p]}
    assert loaded(spark, topics, minPartitions=7).rdd.getNumPartitions() >= 7


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nothing"}, "topic 'nothing' does not exist"),
        ({"subscribe": "", "assign": '{"truth": [9]}'}, "partition 9 does not exist"),
        (
            {"startingOffsets": '{"truth": {"0": 1}}'},
            "has no value for partition 1",
        ),
        ({"endingOffsets": '{"truth": {"0": 1, "1": 1, "2": 99999}}'}, "truth-2: offsets up to"),
        ({"startingTimestamp": BEGIN_MS * 2}, "has no record with a timestamp >="),
        ({"subscribee": "x"}, "unknown option 'subscribee'"),
    ],
)
def test_what_cannot_be_read_is_named(
    spark: Any, topics: Topics, options: dict[str, object], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        loaded(spark, topics, **options).count()


def test_offsets_that_were_deleted_fail_a_read_unless_losses_are_taken(
    spark: Any, topics: Topics
) -> None:
    from confluent_kafka import TopicPartition

    topics.create("trimmed", 1)
    topics.produce("trimmed", 0, [sample(i) for i in range(50)])
    for done in topics.admin.delete_records([TopicPartition("trimmed", 0, 20)]).values():
        done.result(60)
    start = json.dumps({"trimmed": {"0": 10}})
    with pytest.raises(Exception, match="offsets 10 to 19 are below the log start"):
        loaded(spark, topics, subscribe="trimmed", startingOffsets=start).count()
    left = loaded(spark, topics, subscribe="trimmed", startingOffsets=start, failOnDataLoss="false")
    assert left.count() == 30


def test_rows_are_written_through_the_brokers(spark: Any, topics: Topics) -> None:
    topics.create("written", PARTITIONS)
    frame = loaded(spark, topics, toOffset=50).drop("topic")
    write = frame.write.format("neve").mode("append").option("topic", "written")
    write.option("kafka.bootstrap.servers", topics.broker.bootstrap).save()
    found = rows_of(loaded(spark, topics, subscribe="written"))
    wanted = {place: row for place, row in topics.of("truth").items() if place[1] < 50}
    assert sorted(map(_content, found.values())) == sorted(map(_content, wanted.values()))
    # The partition column was kept.
    for partition in range(PARTITIONS):
        rows = [_content(row) for (p, _), row in sorted(found.items()) if p == partition]
        assert rows == [_content(row) for (p, _), row in sorted(wanted.items()) if p == partition]
    with pytest.raises(Exception, match="only be appended to"):
        frame.write.format("neve").mode("overwrite").option("topic", "written").option(
            "kafka.bootstrap.servers", topics.broker.bootstrap
        ).save()
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
        frame.write.format("neve").mode("append").option("topic", "written").save()


def _content(row: Sent) -> tuple[str, ...]:
    return (repr(row.key), repr(row.value), repr(row.headers))


def test_a_kafscale_bucket_is_a_source(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "ns" / "orders" / "0"
    place.mkdir(parents=True)
    for base, codec in ((0, 0), (10, 4)):
        rows = [reference.Record(base + i, 1000 + i, None, b"v%d" % (base + i)) for i in range(10)]
        body = build_batch(rows, codec=codec)
        head = struct.pack(">4sHHqiqI", b"KAFS", 1, 0, base, 10, 1_700_000_000_000, 0)
        foot = struct.pack(">Iq4s", crc32c(body), base + 9, b"END!")
        (place / f"segment-{base:020d}.kfs").write_bytes(head + body + foot)
    frame = (
        spark.read.format("neve")
        .options(store=str(tmp_path), layout="kafscale", subscribe="orders")
        .load()
    )
    found = [(row["offset"], bytes(row["value"])) for row in frame.orderBy("offset").collect()]
    assert found == [(offset, b"v%d" % offset) for offset in range(20)]


REFUSED_FUNCTIONS = {
    *("reflect", "java_method", "try_reflect"),
    *("from_xml", "schema_of_xml", "xpath", "xpath_boolean", "xpath_double", "xpath_float"),
    *("xpath_int", "xpath_long", "xpath_number", "xpath_short", "xpath_string"),
    *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
    *("input_file_name", "input_file_block_length", "input_file_block_start"),
}


def test_each_function_of_spark_is_listed_or_refused_on_purpose(spark: Any) -> None:
    """A version of Spark that brings another one fails here, until someone has looked at it."""
    state = spark._jsparkSession.sessionState()
    listed = [
        (state.functionRegistry(), allowed.FUNCTIONS, REFUSED_FUNCTIONS),
        (state.tableFunctionRegistry(), allowed.TABLE_FUNCTIONS, {"python_worker_logs"}),
    ]
    for registry, functions, refused in listed:
        known = {name.rpartition("builtin.")[2] for name in _lines(registry.listFunction())}
        assert known == functions | refused


def _lines(sequence: Any) -> list[str]:
    return str(sequence.mkString("\n")).split("\n")
