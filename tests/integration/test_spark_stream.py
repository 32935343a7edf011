"""Streams of Spark over topics: restarted again and again, and written back."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.lake.spark.source.sink import RowsNotWrittenError, WriteOptions, write_rows
from support.lake_session import SPARK_TESTS, lake_session
from support.spark_topics import Topics, rows_of, sample

pytestmark = SPARK_TESTS

RESTARTS = 10


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    made = Topics.start(tmp_path_factory.mktemp("topics"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def stream(spark: Any, topics: Topics, topic: str, **options: object) -> Any:
    given = {"store": topics.store, "subscribe": topic, "startingOffsets": "earliest"}
    texts = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("neve").options(**{**given, **texts}).load()


def test_a_query_restarted_ten_times_misses_and_doubles_nothing(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topics.create("restarted", 2)
    number = 0

    def more(partitions: int) -> None:
        nonlocal number
        for partition in range(partitions):
            topics.produce("restarted", partition, [sample(number + i) for i in range(60)])
            number += 60

    partitions = 2
    more(partitions)
    for attempt in range(RESTARTS):
        if attempt == RESTARTS // 2:
            partitions = 3
            topics.grow("restarted", partitions)
        # Most are stopped somewhere in the middle, some of them at once.
        query = restarted(spark, topics, tmp_path, {"processingTime": "0 seconds"})
        more(partitions)
        wait_for_batches(query, attempt % 2)
        query.stop()
        unbroken(query)
    starts = (restarted(spark, topics, tmp_path, {"availableNow": True}) for _ in range(10))
    assert any(map(unbroken, starts))
    assert rows_of(spark.read.parquet(str(tmp_path / "output"))) == topics.of("restarted")


def restarted(spark: Any, topics: Topics, folder: Path, trigger: dict[str, Any]) -> Any:
    frame = stream(spark, topics, "restarted", maxOffsetsPerTrigger=100, includeHeaders="true")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", folder / "checkpoint")
    return writer.trigger(**trigger).start(str(folder / "output"))


def unbroken(query: Any) -> bool:
    """Wait for a query's end: False if Spark did not get as far as asking the source.

    It gives a source's process ten seconds to start, which a busy machine may not.
    """
    try:
        query.awaitTermination(300)
    except Exception as error:
        if "connect back" not in str(error):
            raise
        return False
    return True


def wait_for_batches(query: Any, batches: int) -> None:
    for _ in range(1200):
        done = sum(each["numInputRows"] > 0 for each in query.recentProgress)
        if done >= batches or not query.isActive:
            return
        time.sleep(0.05)


@pytest.mark.soak
def test_a_stream_is_written_to_a_topic(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topics.create("copied", 2)
    topics.create("original", 2)
    for partition in range(2):
        topics.produce("original", partition, [sample(i) for i in range(50)])
    frame = stream(spark, topics, "original", includeHeaders="true").drop("topic")
    writer = (
        frame.writeStream.format("neve")
        .option("kafka.bootstrap.servers", topics.broker.bootstrap)
        .option("topic", "copied")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert any(unbroken(writer.start()) for _ in range(10))
    read = spark.read.format("neve").options(subscribe="copied", includeHeaders="true")
    found = rows_of(read.load(topics.store))
    wanted = topics.of("original")
    assert {place: row[:3] for place, row in found.items()} == {
        place: row[:3] for place, row in wanted.items()
    }


def test_a_task_that_is_run_again_writes_its_rows_again_and_nobody_elses(topics: Topics) -> None:
    topics.create("again", 1)
    options = WriteOptions.parse(
        {"kafka.bootstrap.servers": topics.broker.bootstrap, "topic": "again"}
    )
    tasks = [[b"%d" % (50 * task + i) for i in range(50)] for task in range(2)]

    def failing(values: list[bytes]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": values[:20]})
        with neve.open(topics.folder) as bucket:
            for _ in range(600):
                if bucket.offsets("again", 0)[1] == 120:
                    break
                time.sleep(0.1)
        raise RuntimeError("the task fails when some of its rows are acknowledged")

    for values in tasks:
        write_rows(options, iter([pa.record_batch({"value": values})]))
    with pytest.raises(RuntimeError):
        write_rows(options, failing([b"%d" % (100 + i) for i in range(50)]))
    retried = [b"%d" % (100 + i) for i in range(50)]
    assert write_rows(options, iter([pa.record_batch({"value": retried})])) == 50
    with neve.open(topics.folder) as bucket:
        counts = collections.Counter(int(row.value or b"") for row in bucket.read("again"))
    assert set(counts) == set(range(150))
    assert {number for number, times in counts.items() if times > 1} == set(range(100, 120))
    assert max(counts.values()) == 2


def test_rows_that_brokers_refuse_fail_their_task(topics: Topics) -> None:
    options = WriteOptions.parse(
        {"kafka.bootstrap.servers": topics.broker.bootstrap, "kafka.message.timeout.ms": "60000"}
    )
    batch = pa.record_batch({"value": [b"x"], "topic": ["not/a topic"]})
    with pytest.raises(RowsNotWrittenError, match="1 of 1 rows were not written"):
        write_rows(options, iter([batch]))
