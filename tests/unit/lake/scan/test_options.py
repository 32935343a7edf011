"""Options of reads: what is understood, and that everything else is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.bucket.model import OFFSET_MAX
from neve.errors import InvalidError
from neve.lake.scan.options import READ_OPTIONS, ReadOptions, Subscription, includes_headers
from neve.lake.scan.positions import AtOffsets, AtTimestamp, AtTimestamps
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.session import settings_for

LEAST = {"store": "s3://bucket/neve", "subscribe": "orders"}


def parsed(**more: str) -> ReadOptions:
    return ReadOptions.parse({**LEAST, **more})


def test_the_least_that_is_needed() -> None:
    options = parsed()
    assert options.store == StoreRef("s3://bucket/neve")
    assert options.subscription == Subscription(names=("orders",))
    assert (options.starting, options.ending) == (None, "latest")
    assert options.fail_on_data_loss
    assert not includes_headers(LEAST)
    assert options.max_bytes_per_partition == 128 * 1024 * 1024
    assert not options.push_filters


def test_names_come_in_any_case_as_spark_hands_them_over() -> None:
    given = {
        "STORE": "/b",
        "subscribepattern": "or.*",
        "includeheaders": "TRUE",
        "Layout": "KafScale",
    }
    options = ReadOptions.parse(given)
    assert options.store == StoreRef("/b", "kafscale")
    assert options.subscription.wants("orders")
    assert not options.subscription.wants("my-orders")
    assert includes_headers(given)


def test_a_path_is_a_store() -> None:
    assert ReadOptions.parse({"path": "/b", "subscribe": "t"}).store.url == "/b"


def test_settings_are_options_under_their_own_names() -> None:
    store = ReadOptions.parse({**LEAST, "store.endpoint": "http://x", "reader.poll.ms": "3"}).store
    assert store.settings == (("reader.poll.ms", "3"), ("store.endpoint", "http://x"))


def test_topics_of_a_list_and_of_an_assignment() -> None:
    assert parsed(subscribe=" b , a,b").subscription.names == ("b", "a")
    given = {"store": "/b", "assign": '{"orders": [2, 0], "other": [1]}'}
    assert ReadOptions.parse(given).subscription.assigned == {"orders": (0, 2), "other": (1,)}


@pytest.mark.parametrize(
    ("option", "text", "position"),
    [
        ("startingOffsets", "EARLIEST", "earliest"),
        (
            "startingOffsets",
            '{"orders": {"0": 23, "1": -2}}',
            AtOffsets({"orders": {0: 23, 1: -2}}),
        ),
        ("startingTimestamp", "1700000000000", AtTimestamp(1_700_000_000_000)),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 5}}', AtTimestamps({"orders": {0: 5}})),
    ],
)
def test_where_to_begin(option: str, text: str, position: object) -> None:
    assert parsed(**{option: text}).starting == position


def test_a_moment_wins_over_moments_and_those_over_offsets() -> None:
    ways = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    assert parsed(**ways).starting == AtTimestamps({"orders": {0: 5}})
    assert parsed(**ways, startingTimestamp="7").starting == AtTimestamp(7)


def test_where_to_end() -> None:
    assert parsed(endingOffsets='{"orders": {"0": -1}}').ending == AtOffsets({"orders": {0: -1}})
    assert parsed(endingTimestamp="9").ending == AtTimestamp(9)


def test_bounds_of_rows() -> None:
    bounds = parsed(partitions="0, 2", fromOffset="5", fromTimestamp="10", toTimestamp="20").bounds
    assert bounds.partitions == {0, 2}
    assert (bounds.from_offset, bounds.to_offset) == (5, OFFSET_MAX)
    assert (bounds.from_timestamp, bounds.to_timestamp) == (10, 20)
    assert parsed(toOffset="0").bounds.to_offset == 0


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64m", 64 << 20), ("1GB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parsed(maxBytesPerPartition=text).max_bytes_per_partition == size


def test_what_concerns_brokers_and_consumers_is_passed_over() -> None:
    options = ReadOptions.parse(
        {
            **LEAST,
            "kafka.bootstrap.servers": "host:9092",
            "kafka.isolation.level": "read_committed",
            "fetchOffset.numRetries": "3",
        }
    )
    assert options.isolation_level == "read_committed"
    assert options.store.settings == ()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subscrib": "x"}, "unknown option 'subscrib' .did you mean subscribe"),
        ({"store": ""}, "store, path"),
        ({"path": "/other"}, "store and path are given"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": ""}, "none is given"),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": "", "assign": "[1]"}, "must be a JSON object"),
        ({"subscribe": "", "assign": '{"a": 1}'}, "must have a list of partitions"),
        ({"subscribe": "", "assign": '{"a": [-1]}'}, "-1 is not a partition"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": "somewhere"}, "not JSON"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "partition 0 of 'orders'"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-3"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "'x' is not a partition"),
        ({"startingOffsets": '{"orders": 3}'}, "'orders'"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "partition 0 of 'orders'"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "guess"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"minPartitions": "two"}, "minPartitions"),
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition"),
        ({"maxBytesPerPartition": "much"}, "maxBytesPerPartition"),
        ({"partitions": "1,x"}, "partitions"),
        ({"isolation.level": "none"}, "isolation.level"),
        ({"layout": "other"}, "layout"),
        ({"prefetch.window": "0"}, "prefetch.window"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming reads only"),
    ],
)
def test_what_cannot_be_is_refused_by_name(more: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidError, match=told):
        parsed(**more)


def test_a_stream_begins_where_it_likes_and_has_no_end() -> None:
    latest = ReadOptions.parse({**LEAST, "startingOffsets": "latest"}, streaming=True)
    assert latest.starting == "latest"
    limited = ReadOptions.parse({**LEAST, "maxOffsetsPerTrigger": "5"}, streaming=True)
    assert limited.max_offsets_per_trigger == 5
    with pytest.raises(InvalidError, match="endingOffsets is for batch reads only"):
        ReadOptions.parse({**LEAST, "endingOffsets": "latest"}, streaming=True)


def test_every_option_and_setting_is_on_its_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "users" / "spark.md").read_text(encoding="utf-8")
    options = {name for name in READ_OPTIONS if name != "path"}
    settings = settings_for("local[*]", {})
    assert [name for name in [*sorted(options), *settings] if f"`{name}`" not in page] == []
