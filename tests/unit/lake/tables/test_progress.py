"""Offsets as text and as a comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import DamagedError, UnsupportedError
from neve.lake.tables import Progress, TopicProgress
from neve.lake.tables.progress import RangeState, from_text, merged, offset_of, range_state, to_text
from unit.lake.tables.table_scene import at

OFFSETS = st.dictionaries(st.integers(0, 6), st.integers(0, 2**63 - 1), max_size=4)
PROGRESS = st.dictionaries(
    st.sampled_from(["a" * 32, "b" * 32]), st.builds(TopicProgress, st.text(max_size=9), OFFSETS)
)


@given(PROGRESS)
def test_text_keeps_everything(progress: Progress) -> None:
    assert from_text(to_text(progress, rows=7), "here") == (progress, {"rows": 7})


@given(PROGRESS, PROGRESS)
def test_a_merge_takes_the_new_and_keeps_the_rest(current: Progress, new: Progress) -> None:
    result = merged(current, new)
    for topic_id in {*current, *new}:
        for partition in range(7):
            expected = offset_of(new, topic_id, partition)
            if expected is None:
                expected = offset_of(current, topic_id, partition)
            assert offset_of(result, topic_id, partition) == expected


@given(PROGRESS, PROGRESS)
def test_what_was_merged_is_done_and_was_open_before(current: Progress, new: Progress) -> None:
    assert range_state(current, current, new) is RangeState.OPEN
    after = merged(current, new)
    moved = [
        (topic_id, partition)
        for topic_id, topic in new.items()
        for partition, end in topic.offsets.items()
        if offset_of(current, topic_id, partition) != end
    ]
    expected = RangeState.DONE if moved else RangeState.OPEN
    assert range_state(after, current, new) is expected


@pytest.mark.parametrize(
    ("current", "expected", "new", "standing"),
    [
        ({}, {}, at(5), RangeState.OPEN),
        (at(0), {}, at(5), RangeState.DIVERGED),
        (at(3), {}, at(5), RangeState.DIVERGED),
        (at(5), {}, at(5), RangeState.DONE),
        (at(9), {}, at(5), RangeState.DONE),
        (at(2), at(3), at(5), RangeState.DIVERGED),
        (at(5, None), {}, at(5, 5), RangeState.DIVERGED),
        (at(5, 5), at(5, 2), at(5, 9), RangeState.DIVERGED),
        (at(7, 2), at(5, 2), at(5, 9), RangeState.OPEN),
        (at(5, topic_id="b" * 32), {}, at(5), RangeState.OPEN),
    ],
)
def test_only_exactly_what_was_planned_from_is_open(
    current: Progress, expected: Progress, new: Progress, standing: RangeState
) -> None:
    assert range_state(current, expected, new) is standing


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version":1}', '{"version":1,"topics":{"a":{"name":"x"}}}']
)
def test_what_cannot_be_read_is_damaged(text: str) -> None:
    with pytest.raises(DamagedError, match="here is damaged"):
        from_text(text, "here")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="version 9"):
        from_text('{"version":9,"topics":{}}', "here")
