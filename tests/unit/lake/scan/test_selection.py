"""Where a batch begins and ends, resolved against what a bucket in memory holds."""

from __future__ import annotations

import json

import pytest

from neve import runtime
from neve.errors import InvalidError
from neve.lake.scan.options import ReadOptions
from neve.lake.spark.source.reader import NeveReader
from neve.log.segment.state_table import INTERNAL_TOPICS
from neve.records.reference import Record, build_batch
from support import bucket_samples as samples
from support.bucket_samples import Writer

END = 80
TRIMMED = 20
OFFSETS_TOPIC = INTERNAL_TOPICS[0]
DISORDER = (1_000, 5_000, 2_000, 6_000)
"""The times of a topic whose records are not in their order."""
NEVER = 9_000
"""Younger than every record."""


@pytest.fixture(scope="module")
def store() -> str:
    """Of `t` each record is a millisecond younger than the one before, from 1,000 on."""
    url = samples.fresh_url()

    async def fill() -> None:
        writer = await Writer.start(url)
        await samples.layered(writer, "t", 2)
        for topic, partitions in (("t2", 1), ("att", 1), ("empty", 1), (OFFSETS_TOPIC, 1)):
            await writer.node.topics.create(topic, partitions)
        for topic in ("t2", "att", OFFSETS_TOPIC):
            await writer.append(topic, 0, 10)
        await writer.node.topics.create("disorder", 1)
        rows = [Record(at, time, None, b"v") for at, time in enumerate(DISORDER)]
        log = writer.node.leader("disorder", 0).log
        await log.append(bytearray(build_batch(rows))).commit.wait()
        await samples.layered(writer, "trimmed", 1)
        await writer.start_at("trimmed", 0, TRIMMED)
        await writer.close()

    runtime.run(fill())
    return url


def read(store: str, **options: object) -> dict[tuple[str, int], list[int]]:
    """The offsets of each partition that gives any."""
    given = {"subscribe": "t", **options}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
        if value is not None
    }
    reader = NeveReader(
        ReadOptions.parse({"store": store, **texts}), ("topic", "partition", "offset")
    )
    found: dict[tuple[str, int], list[int]] = {}
    for task in reader.partitions():
        for batch in reader.read(task):
            for row in batch.to_pylist():
                found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return found


def of(first: int, second: int, end_first: int = END, end_second: int = END) -> object:
    """What is read of `t` from and up to these offsets."""
    rows = {("t", 0): list(range(first, end_first)), ("t", 1): list(range(second, end_second))}
    return {name: offsets for name, offsets in rows.items() if offsets}


def times(first: int, second: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": first, "1": second}}


def test_each_partition_begins_at_its_own_moment(store: str) -> None:
    assert read(store, startingOffsetsByTimestamp=times(1_030, 1_065)) == of(30, 65)
    assert read(store, startingOffsetsByTimestamp=times(0, 1_079)) == of(0, 79)


def test_each_partition_ends_before_its_own_moment(store: str) -> None:
    assert read(store, endingOffsetsByTimestamp=times(1_030, 1_065)) == of(0, 0, 30, 65)
    assert read(store, endingOffsetsByTimestamp=times(0, 1_001)) == of(0, 0, 0, 1)
    both = {
        "startingOffsetsByTimestamp": times(1_010, 1_060),
        "endingOffsetsByTimestamp": times(1_030, 1_065),
    }
    assert read(store, **both) == of(10, 60, 30, 65)


def test_a_beginning_that_no_record_is_young_enough_for_is_told(store: str) -> None:
    asked = times(1_030, NEVER)
    for strategy in (None, "error"):
        with pytest.raises(InvalidError, match=f"t-1 has no record with a timestamp >= {NEVER}"):
            read(
                store,
                startingOffsetsByTimestamp=asked,
                startingOffsetsByTimestampStrategy=strategy,
            )
    with pytest.raises(InvalidError, match=f"empty-0 has no record with a timestamp >= {NEVER}"):
        read(store, subscribe="empty", startingTimestamp=str(NEVER))


def test_or_it_is_the_end_where_that_is_asked_for(store: str) -> None:
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    asked = times(1_030, NEVER)
    assert read(store, startingOffsetsByTimestamp=asked, **latest) == of(30, END)
    assert read(store, startingTimestamp=str(NEVER), **latest) == {}
    assert read(store, subscribe="empty", startingTimestamp=str(NEVER), **latest) == {}


def test_an_end_that_no_record_is_young_enough_for_is_the_end(store: str) -> None:
    assert read(store, endingOffsetsByTimestamp=times(1_030, NEVER)) == of(0, 0, 30)
    assert read(store, endingTimestamp=str(NEVER)) == of(0, 0)


def test_a_moment_is_a_place_in_the_log_and_no_filter(store: str) -> None:
    """As Kafka has it: the first record that is not older, and all behind it."""
    name = ("disorder", 0)
    for moment, first in ((1_000, 0), (2_000, 1), (5_000, 1), (5_001, 3)):
        asked = {"disorder": {"0": moment}}
        begun = read(store, subscribe="disorder", startingOffsetsByTimestamp=asked)
        assert begun == {name: list(range(first, len(DISORDER)))}
        ended = read(store, subscribe="disorder", endingOffsetsByTimestamp=asked)
        assert ended == ({name: list(range(first))} if first else {})


def test_a_moment_before_the_logs_start_is_its_start(store: str) -> None:
    asked = {"trimmed": {"0": 1_005}}
    found = read(store, subscribe="trimmed", startingOffsetsByTimestamp=asked)
    assert found == {("trimmed", 0): list(range(TRIMMED, END))}


def test_one_moment_for_all_wins_over_moments_and_those_over_offsets(store: str) -> None:
    starts = {"startingOffsets": times(1, 2), "startingOffsetsByTimestamp": times(1_010, 1_020)}
    assert read(store, **starts) == of(10, 20)
    assert read(store, **starts, startingTimestamp="1040") == of(40, 40)
    ends = {"endingOffsets": times(1, 2), "endingOffsetsByTimestamp": times(1_010, 1_020)}
    assert read(store, **ends) == of(0, 0, 10, 20)
    assert read(store, **ends, endingTimestamp="1040") == of(0, 0, 40, 40)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_moments_name_every_partition_and_no_other(store: str, side: str) -> None:
    option = f"{side}OffsetsByTimestamp"
    with pytest.raises(InvalidError, match=f"{option} has no value for partition 1 of 't'"):
        read(store, **{option: {"t": {"0": 1_000}}})
    with pytest.raises(InvalidError, match=f"{option} names partition 0 of 'tt'"):
        read(store, **{option: {**times(1_000, 1_000), "tt": {"0": 1_000}}})


def test_a_pattern_is_of_whole_names_and_never_of_internal_topics(store: str) -> None:
    def named(pattern: str, **options: object) -> dict[tuple[str, int], int]:
        found = read(store, subscribe=None, subscribePattern=pattern, **options)
        return {name: len(offsets) for name, offsets in found.items()}

    assert named("t.?") == {("t", 0): END, ("t", 1): END, ("t2", 0): 10}
    assert named("t") == {("t", 0): END, ("t", 1): END}
    assert named("t2|att") == {("t2", 0): 10, ("att", 0): 10}
    assert named("nothing.*") == {}
    every = {topic for topic, _ in named(".*")}
    assert every == {"t", "t2", "att", "disorder", "trimmed"}
    later = {**times(1_078, 1_079), "t2": {"0": 1_003}}
    assert named("t.?", startingOffsetsByTimestamp=later) == {
        ("t", 0): 2,
        ("t", 1): 1,
        ("t2", 0): 7,
    }
