"""Finds the end of a leader epoch, for clients that check their position after a new leader."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from neve.log.segment.sections import EpochStart

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """The greatest epoch up to the requested one, and its end offset; both are -1 if unknown."""

    epoch: int
    end_offset: int


def end_of_epoch(
    starts: Sequence[EpochStart], epoch: int, *, start_offset: int, end_offset: int
) -> EpochEnd:
    """Return the end of an epoch in a log from `start_offset` to `end_offset`, by Kafka's rules.

    The newest epoch ends at the end of the log, and a greater one is unknown. Epochs whose records
    all lie before the log's start are forgotten, and the first known epoch begins at the log's
    start or later. An epoch before the first known one ends where that one begins.
    """
    above = bisect.bisect_right(starts, epoch, key=lambda row: row.epoch)
    if epoch == UNDEFINED or (above == len(starts) and (not starts or starts[-1].epoch != epoch)):
        return EpochEnd(UNDEFINED, UNDEFINED)
    if above == len(starts):
        return EpochEnd(epoch, end_offset)
    end = starts[above].start_offset
    if above == 0 or end <= start_offset:
        return EpochEnd(epoch, max(end, start_offset))
    return EpochEnd(starts[above - 1].epoch, end)
