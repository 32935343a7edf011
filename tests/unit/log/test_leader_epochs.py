"""Where an epoch ends, asked from every side."""

from __future__ import annotations

import pytest

from neve.log.leader_epochs import end_of_epoch
from neve.log.segment.sections import EpochStart

STARTS = [EpochStart(2, 5), EpochStart(4, 10), EpochStart(5, 10), EpochStart(9, 30)]


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
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
    assert end_of_epoch(STARTS, epoch, 42) == end


def test_without_any_epoch_nothing_is_known() -> None:
    assert end_of_epoch([], 0, 42) == (-1, -1)
