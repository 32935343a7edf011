"""Where an epoch ends, asked from every side."""

from __future__ import annotations

import pytest

from neve.log.leader_epochs import end_of_epoch
from neve.log.segment.sections import EpochStart

STARTS = [EpochStart(2, 5), EpochStart(4, 10), EpochStart(5, 10), EpochStart(9, 30)]


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (-2, (-2, 5)),
        (-1, (-1, -1)),
        (0, (0, 5)),  # before all that is known: it ends where the first begins
        (1, (1, 5)),
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (4, 10)),
        (5, (5, 30)),
        (8, (5, 30)),
        (9, (9, 42)),
        (10, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, end: tuple[int, int]) -> None:
    assert end_of_epoch(STARTS, epoch, start_offset=0, end_offset=42) == end


@pytest.mark.parametrize(
    ("start", "epoch", "end"),
    [
        (4, 1, (1, 5)),
        (6, 1, (1, 6)),  # what is left of the first epoch begins at the log's start
        (9, 2, (2, 10)),
        (10, 2, (2, 10)),  # forgotten: as if it were before the first known one
        (20, 2, (2, 20)),
        (20, 4, (4, 20)),
        (20, 5, (5, 30)),
        (30, 5, (5, 30)),
        (35, 3, (3, 35)),
        (35, 9, (9, 42)),
        (42, 10, (-1, -1)),
    ],
)
def test_epochs_before_the_start_of_the_log_are_forgotten(
    start: int, epoch: int, end: tuple[int, int]
) -> None:
    assert end_of_epoch(STARTS, epoch, start_offset=start, end_offset=42) == end


def test_without_any_epoch_nothing_is_known() -> None:
    for epoch in (-1, 0, 1):
        assert end_of_epoch([], epoch, start_offset=0, end_offset=42) == (-1, -1)
