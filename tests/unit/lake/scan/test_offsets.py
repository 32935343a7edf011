"""A stream's offsets: written alike when equal, and cut to a limit without starving anyone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import InvalidError
from neve.lake.scan.offsets import StreamOffsets, TopicOffsets, known_offsets, limited, shares


def test_equal_offsets_are_equal_text() -> None:
    one = StreamOffsets({"b": TopicOffsets("2", {10: 1, 9: 2}), "a": TopicOffsets("1", {0: 0})})
    two = StreamOffsets({"a": TopicOffsets("1", {0: 0}), "b": TopicOffsets("2", {9: 2, 10: 1})})
    text = json.dumps(one.to_json())
    assert text == json.dumps(two.to_json())
    assert StreamOffsets.from_json(json.loads(text)) == one


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"a": {"offsets": {}}}', '{"a": {"id": "1", "offsets": {"x": 1}}}', "[1]"]
)
def test_offsets_of_another_source_are_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="checkpoint"):
        StreamOffsets.from_json(json.loads(text))


def test_a_topic_made_again_was_not_read() -> None:
    start = StreamOffsets({"a": TopicOffsets("1", {0: 7})})
    assert known_offsets(start, "a", "1") == {0: 7}
    assert known_offsets(start, "a", "2") == {}
    assert known_offsets(start, "b", "1") == {}


LAGS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5)), st.integers(0, 1000), max_size=8
)


@given(LAGS, st.integers(1, 500))
def test_shares_fill_a_batch_and_take_no_more_than_there_is(
    lags: dict[tuple[str, int], int], most: int
) -> None:
    found = shares(lags, most)
    assert found.keys() == lags.keys()
    lagging = sum(lag > 0 for lag in lags.values())
    assert sum(found.values()) == min(max(most, lagging), sum(lags.values()))
    assert all(min(1, lags[name]) <= found[name] <= lags[name] for name in lags)


def test_a_partition_with_one_record_does_not_wait_behind_one_that_always_has_more() -> None:
    assert shares({("a", 0): 1_000_000, ("a", 1): 1}, 1000) == {("a", 0): 999, ("a", 1): 1}
    assert shares({("a", 0): 1_000_000, ("a", 1): 1}, 1) == {("a", 0): 1, ("a", 1): 1}


@settings(deadline=None)
@given(LAGS, st.integers(1, 500))
def test_in_the_end_every_partition_is_read(lags: dict[tuple[str, int], int], most: int) -> None:
    left = dict(lags)
    for _ in range(sum(lags.values()) // most + 1):
        taken = shares(left, most)
        left = {name: lag - taken[name] for name, lag in left.items()}
    assert set(left.values()) <= {0}


def test_a_limit_counts_new_partitions_and_topics_from_where_they_begin() -> None:
    start = StreamOffsets({"a": TopicOffsets("1", {0: 100})})
    end = StreamOffsets({"a": TopicOffsets("1", {0: 110, 1: 50}), "b": TopicOffsets("3", {0: 20})})
    begins = {("a", 0): 0, ("a", 1): 40, ("b", 0): 10}
    assert limited(start, end, begins, 100) == end
    third = limited(start, end, begins, 15)
    assert third == StreamOffsets(
        {"a": TopicOffsets("1", {0: 105, 1: 45}), "b": TopicOffsets("3", {0: 15})}
    )
