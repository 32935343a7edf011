"""Every key has one format and one parse, sorts by its number, and is nobody's folder."""

from __future__ import annotations

import pytest

from neve.log import keys
from neve.log.keys import SeriesKeys
from neve.store.key import PART_BYTES_MAX, checked_key

TOPIC_ID = bytes(range(16))
STREAM = keys.wal_stream(7)


@pytest.mark.parametrize("number", [0, 1, 9, 10, 10**19, 2**64 - 1])
def test_numbers_and_checkpoints_round_trip(number: int) -> None:
    assert STREAM.number_of(STREAM.number(number)) == number
    assert STREAM.checkpoint_of(STREAM.checkpoint(number)) == number


def test_a_number_is_no_checkpoint_and_a_checkpoint_no_number() -> None:
    assert STREAM.number_of(STREAM.checkpoint(3)) is None
    assert STREAM.checkpoint_of(STREAM.number(3)) is None


def test_keys_sort_as_their_numbers() -> None:
    numbers = [0, 9, 10, 99, 100, 10**12, 10**19]
    assert sorted(map(STREAM.number, reversed(numbers))) == list(map(STREAM.number, numbers))


def test_keys_of_another_series_are_not_ours() -> None:
    other = keys.wal_stream(8)
    assert STREAM.number_of(other.number(1)) is None
    assert STREAM.checkpoint_of(other.checkpoint(1)) is None
    assert keys.rollup_checkpoint(STREAM, keys.new_rollup_key(other, 1)) is None


@pytest.mark.parametrize(
    "rest", ["", "1", "0" * 19, "0" * 21, "-" + "0" * 19, "0" * 20 + "\n", "٣" * 20, "0" * 20 + "/"]
)
def test_what_is_not_twenty_plain_digits_is_no_number(rest: str) -> None:
    assert STREAM.number_of(STREAM.prefix + rest) is None
    assert STREAM.checkpoint_of(STREAM.checkpoints + rest) is None


def test_a_rollup_names_its_checkpoint() -> None:
    key = keys.new_rollup_key(STREAM, 12)
    assert keys.rollup_checkpoint(STREAM, key) == 12
    assert keys.new_rollup_key(STREAM, 12) != key
    assert STREAM.number_of(key) is None
    assert STREAM.checkpoint_of(key) is None


def test_a_rollup_without_its_stream_is_none() -> None:
    bare = keys.new_rollup_key(STREAM, 12).removeprefix(STREAM.prefix)
    assert keys.rollup_checkpoint(STREAM, bare) is None


def test_a_segment_s_name_round_trips() -> None:
    prefix = keys.segment_prefix("orders", TOPIC_ID, 3)
    key = keys.new_segment_key(prefix, 100, 7, "kfs")
    name = keys.segment_name(key)
    assert name is not None
    assert (name.base_offset, name.incarnation, name.suffix) == (100, 7, "kfs")
    assert keys.segment_name(key + "x") is None
    assert keys.segment_name(key.replace(".kfs", ".kfst")) is None


@pytest.mark.parametrize("topic", ["t", "a.b", f"odd.{'0' * 32}", "x" * 249])
def test_a_partition_is_found_from_its_keys(topic: str) -> None:
    shown = topic[: keys.TOPIC_NAME_SHOWN]
    segment = keys.new_segment_key(keys.segment_prefix(topic, TOPIC_ID, 5), 0, 1, "index")
    number = keys.manifest(topic, TOPIC_ID, 5).number(1)
    expected = keys.PartitionName(shown, TOPIC_ID, 5)
    assert keys.partition_of(segment) == expected
    assert keys.partition_of(number) == expected
    assert keys.partition_of(keys.topic_prefix(topic, TOPIC_ID)) is None


def test_a_stream_is_found_from_its_keys() -> None:
    assert keys.stream_of(STREAM.number(3)) == 7
    assert keys.stream_of(STREAM.checkpoint(3)) == 7
    assert keys.stream_of("wal/7/3") is None


def test_a_heartbeat_is_found_from_its_key() -> None:
    for incarnation in (0, 7, 2**64 - 1):
        assert keys.heartbeat_of(keys.heartbeat_key(incarnation)) == incarnation
    for key in ("meta/heartbeat/7", f"{keys.heartbeat_key(7)}/x", keys.cluster_log().number(7)):
        assert keys.heartbeat_of(key) is None


def test_every_key_is_one_that_every_store_takes() -> None:
    topic = "t" * 249
    series = keys.manifest(topic, TOPIC_ID, 2**31 - 1)
    prefix = keys.segment_prefix(topic, TOPIC_ID, 2**31 - 1)
    made = [
        keys.cluster_log().number(2**64 - 1),
        keys.cluster_log().checkpoint(2**64 - 1),
        keys.heartbeat_key(2**64 - 1),
        STREAM.number(1),
        STREAM.checkpoint(1),
        keys.new_rollup_key(STREAM, 1),
        series.number(1),
        series.checkpoint(1),
        keys.new_run_key(series),
        keys.new_segment_key(prefix, 2**63 - 1, 2**63, "kfs"),
    ]
    for key in made:
        assert checked_key(key) == key
        assert max(len(part) for part in key.split("/")) <= PART_BYTES_MAX
    folders = {key.rpartition("/")[0] for key in made}
    assert not folders & set(made)


def test_the_numbers_of_a_series_lie_apart_from_its_runs_and_rollups() -> None:
    series = SeriesKeys("p/")
    assert series.number_of(keys.new_run_key(series)) is None
    assert series.checkpoint_of(keys.new_run_key(series)) is None
