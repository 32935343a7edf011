"""The streaming reader, asked as Spark asks it, over a bucket in memory."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from neve.bucket.model import TopicReplacedError
from neve.bucket.sync_bucket import Bucket
from neve.cluster.log import NoTopicError
from neve.errors import InvalidError, LostRangeError
from neve.lake.scan.options import ReadOptions
from neve.lake.spark.source.stream import NeveStreamReader
from support import bucket_samples as samples
from support.bucket_samples import Writer

ALL = ReadAllAvailable()


class Query:
    """What Spark does with a source: offsets kept as text, batches read between them."""

    def __init__(self, url: str, **options: str) -> None:
        given = {"store": url, "subscribe": "t", "startingOffsets": "earliest", **options}
        self._options = {name: text for name, text in given.items() if text}
        self.offset: str | None = None
        self.rows: list[tuple[str, int, int]] = []
        self.restart()

    def restart(self) -> None:
        parsed = ReadOptions.parse(self._options, streaming=True)
        self.reader = NeveStreamReader(parsed, ("topic", "partition", "offset"))

    def step(self, limit: Any = None) -> int:
        """One trigger; how many rows it brought."""
        if self.offset is None:
            self.offset = json.dumps(self.reader.initialOffset())
        start = json.loads(self.offset)
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        if json.dumps(end) == self.offset:
            return 0
        before = len(self.rows)
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                columns = [batch.column(name).to_pylist() for name in batch.schema.names]
                self.rows += list(zip(*columns, strict=True))
        self.offset = json.dumps(end)
        return len(self.rows) - before


async def layered(partitions: int = 2) -> tuple[str, Writer]:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", partitions)
    return url, writer


def expected(partitions: int, end: int = 80, first: int = 0) -> list[tuple[str, int, int]]:
    return [("t", p, offset) for p in range(partitions) for offset in range(first, end)]


async def test_everything_comes_once_and_then_what_is_new() -> None:
    url, writer = await layered()
    query = Query(url)
    assert query.step() == 160
    assert query.step() == 0
    await writer.append("t", 1, 10)
    query.restart()
    assert query.step() == 10
    assert sorted(query.rows) == sorted([*expected(2), *[("t", 1, o) for o in range(80, 90)]])
    await writer.close()


async def test_the_default_is_to_begin_at_the_end() -> None:
    url, writer = await layered()
    query = Query(url, startingOffsets="")
    assert query.step() == 0
    await writer.append("t", 0, 5)
    assert query.step() == 5
    await writer.close()


async def test_a_limit_cuts_batches_and_loses_nothing() -> None:
    url, writer = await layered()
    query = Query(url, maxOffsetsPerTrigger="37")
    sizes = []
    while size := query.step():
        sizes.append(size)
        query.restart()
    assert sizes == [37, 37, 37, 37, 12]
    assert sorted(query.rows) == expected(2)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(37)
    await writer.close()


async def test_available_now_ends_where_the_log_ended() -> None:
    url, writer = await layered()
    query = Query(url, maxOffsetsPerTrigger="100")
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == 100
    await writer.append("t", 0, 5)
    await writer.node.topics.create("t2", 1)
    assert query.step() == 60
    assert query.step() == 0
    query.restart()
    assert query.step(ALL) == 5
    await writer.close()


async def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    url, writer = await layered(1)
    query = Query(url)
    assert query.step() == 80
    await writer.node.topics.add_partitions("t", 2)
    await writer.append("t", 1, 7)
    assert query.step() == 7
    assert query.rows[80:] == [("t", 1, offset) for offset in range(7)]
    await writer.close()


async def test_topics_that_come_to_match_a_pattern_are_read() -> None:
    url, writer = await layered(1)
    query = Query(url, subscribe="", subscribePattern="t.*", startingOffsets="")
    assert query.step() == 0
    await writer.node.topics.create("t2", 1)
    await writer.append("t2", 0, 3)
    assert query.step() == 3
    await writer.close()


async def test_a_topic_made_again_fails_the_stream_or_is_read_from_its_beginning() -> None:
    url, writer = await layered(1)
    careful, easy = Query(url), Query(url, failOnDataLoss="false")
    assert careful.step() == easy.step() == 80
    await writer.node.topics.delete("t")
    with pytest.raises(NoTopicError, match="'t'"):
        careful.step()
    assert easy.step() == 0
    await writer.node.topics.create("t", 1)
    await writer.append("t", 0, 4)
    with pytest.raises(TopicReplacedError):
        careful.step()
    assert easy.step() == 4
    assert easy.rows[80:] == [("t", 0, offset) for offset in range(4)]
    await writer.close()


async def test_a_topic_made_again_within_a_batch_is_not_mistaken() -> None:
    url, writer = await layered(1)
    for fail in ("true", "false"):
        query = Query(url, failOnDataLoss=fail)
        start = query.reader.initialOffset()
        end = query.reader.latestOffset(start, ALL)
        (planned,) = query.reader.partitions(start, end)
        if fail == "true":
            await writer.node.topics.delete("t")
            await writer.node.topics.create("t", 1)
            await writer.append("t", 0, 100)
            with pytest.raises(TopicReplacedError):
                query.reader.partitions(start, end)
            with pytest.raises(TopicReplacedError):
                list(query.reader.read(planned))
        else:
            start["t"]["id"] = end["t"]["id"] = "00" * 16
            assert query.reader.partitions(start, end) == []
    await writer.close()


async def test_retention_that_passes_the_reader_fails_it_or_is_passed_over() -> None:
    url, writer = await layered(1)
    careful, easy = Query(url), Query(url, failOnDataLoss="false")
    for query in (careful, easy):
        query.offset = json.dumps(query.reader.initialOffset())
    await writer.start_at("t", 0, 20)
    with pytest.raises(LostRangeError, match="offsets 0 to 19 are below the log start"):
        careful.step()
    assert easy.step() == 60
    assert easy.rows == expected(1, first=20)
    await writer.close()


async def test_retention_that_passes_a_task_fails_it_or_is_passed_over() -> None:
    url, writer = await layered(1)
    careful, easy = Query(url), Query(url, failOnDataLoss="false")
    start = careful.reader.initialOffset()
    end = careful.reader.latestOffset(start, ALL)
    (planned,) = careful.reader.partitions(start, end)
    await writer.start_at("t", 0, 20)
    with pytest.raises(LostRangeError):
        list(careful.reader.read(planned))
    assert sum(batch.num_rows for batch in easy.reader.read(planned)) == 60
    await writer.node.topics.delete("t")
    with pytest.raises(NoTopicError):
        list(careful.reader.read(planned))
    assert list(easy.reader.read(planned)) == []
    await writer.close()


async def test_partitions_and_bounds_of_a_stream() -> None:
    url, writer = await layered(2)
    query = Query(url, partitions="1", fromTimestamp="1030", minPartitions="4")
    assert query.step() == 50
    assert query.rows == [("t", 1, offset) for offset in range(30, 80)]
    await writer.close()


@pytest.mark.parametrize("limit", ["", "10"])
async def test_a_stream_that_begins_beyond_the_end_is_told(limit: str) -> None:
    url, writer = await layered(1)
    options = {"startingOffsets": '{"t": {"0": 500}}', "maxOffsetsPerTrigger": limit}
    with pytest.raises(LostRangeError, match="the stream is at offset 500, and the log ends at 80"):
        Query(url, **options).step()
    easy = Query(url, failOnDataLoss="false", **options)
    assert easy.step() == 0
    await writer.append("t", 0, 5)
    assert easy.step() == 5
    await writer.close()


async def test_spark_4_1_asks_for_the_end_first_and_does_not_say_where_a_batch_begins() -> None:
    url, writer = await layered(1)
    query = Query(url, startingOffsets="")
    end = query.reader.latestOffset()
    await writer.append("t", 0, 5)
    behind = query.reader.initialOffset()
    assert query.reader.partitions(behind, end) == []
    query.offset = json.dumps(end)
    assert query.step() == 5
    query.restart()
    beyond = {"t": {**end["t"], "offsets": {"0": 500}}}
    told = "the stream is at offset 500, and the log ends at 85"
    with pytest.raises(LostRangeError, match=told):
        query.reader.partitions(beyond, query.reader.latestOffset())
    given = Query(url, startingOffsets='{"t": {"0": 500}}').reader
    end = given.latestOffset()
    with pytest.raises(LostRangeError, match=told):
        given.partitions(given.initialOffset(), end)
    easy = Query(url, failOnDataLoss="false").reader
    assert easy.partitions(beyond, easy.latestOffset()) == []
    await writer.close()


async def test_a_partition_that_lost_its_beginning_before_it_was_read_is_told() -> None:
    url, writer = await layered(1)
    careful, easy = Query(url), Query(url, failOnDataLoss="false")
    assert careful.step() == easy.step() == 80
    await writer.node.topics.add_partitions("t", 2)
    await writer.append("t", 1, 20)
    await writer.node.leader("t", 1).log.tier()
    await writer.append("t", 1, 5)
    await writer.start_at("t", 1, 20)
    with pytest.raises(LostRangeError, match="t-1: offsets 0 to 19"):
        careful.step()
    assert easy.step() == 5
    await writer.close()


async def test_a_name_that_is_wrong_from_the_beginning_is_told_whoever_takes_losses() -> None:
    url, writer = await layered(1)
    with pytest.raises(NoTopicError, match="'tt'"):
        Query(url, subscribe="tt", failOnDataLoss="false").step()
    named = json.dumps({"t": {"0": 5, "7": 5}})
    with pytest.raises(InvalidError, match="startingOffsets names partition 7 of 't'"):
        Query(url, startingOffsets=named).step()
    await writer.close()


async def test_a_pattern_never_means_internal_topics() -> None:
    url, writer = await layered(1)
    await writer.node.topics.create("__consumer_offsets", 1)
    await writer.append("__consumer_offsets", 0, 5)
    query = Query(url, subscribe="", subscribePattern=".*")
    assert query.step() == 80
    assert Query(url, subscribe="__consumer_offsets").step() == 5
    await writer.close()


async def test_no_task_reads_more_than_it_may() -> None:
    url, writer = await layered(1)
    query = Query(url, maxBytesPerPartition="300")
    start = query.reader.initialOffset()
    planned = query.reader.partitions(start, query.reader.latestOffset(start, ALL))
    assert len(planned) > 5
    assert all(sum(each.bytes for each in task.ranges) <= 300 for task in planned)
    assert query.step() == 80
    await writer.close()


async def test_a_limit_is_not_used_up_by_what_retention_removed() -> None:
    url, writer = await layered(1)
    query = Query(url, maxOffsetsPerTrigger="10", failOnDataLoss="false")
    query.offset = json.dumps(query.reader.initialOffset())
    await writer.start_at("t", 0, 40)
    assert query.step() == 10
    assert query.rows == [("t", 0, offset) for offset in range(40, 50)]
    await writer.close()


async def test_edges_of_many_partitions_are_looked_up_together() -> None:
    url, writer = await layered(3)
    given = json.dumps({"t": {"0": -1, "1": -1, "2": -2}})
    query = Query(url, startingOffsets=given)
    with mock.patch.object(Bucket, "plan", autospec=True, side_effect=Bucket.plan) as planned:
        start = query.reader.initialOffset()
    assert start["t"]["offsets"] == {"0": 80, "1": 80, "2": 0}
    assert planned.call_count == 2
    await writer.close()


@pytest.mark.parametrize("starting", ["latest", '{"t": {"0": -1}}'])
async def test_a_first_batch_that_fails_does_not_move_the_beginning(starting: str) -> None:
    url, writer = await layered(1)
    query = Query(url, startingOffsets=starting)
    start = query.reader.initialOffset()
    await writer.append("t", 0, 5)
    end = query.reader.latestOffset(start, ALL)
    await writer.append("t", 0, 5)
    query.restart()  # Spark has written down the end alone, and asks for the beginning again
    assert query.reader.partitions(query.reader.initialOffset(), end) == []
    query.offset = json.dumps(end)
    assert query.step() == 10
    assert query.rows == [("t", 0, offset) for offset in range(80, 90)]
    await writer.close()


async def test_records_that_come_while_a_query_starts_do_not_fail_it() -> None:
    url, writer = await layered(1)
    query = Query(url, startingOffsets="latest")
    query.reader.prepareForTriggerAvailableNow()
    await writer.append("t", 0, 5)
    assert query.step() == 0
    assert query.offset is not None
    assert json.loads(query.offset)["t"]["offsets"] == {"0": 85}
    await writer.close()
