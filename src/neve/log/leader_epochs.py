"""Where the records of a leader epoch end, as a client that lost its place asks."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from neve.log.segment.sections import EpochStart

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """Return the greatest epoch up to the requested one and its end offset; -1: unknown."""

    epoch: int
    end_offset: int


def end_of_epoch(starts: Sequence[EpochStart], epoch: int, end_offset: int) -> EpochEnd:
    """Kafka's rule. The newest epoch ends where the log does; one above it is not known here.

    An epoch before all that are known ends where the first of them begins.
    """
    above = bisect.bisect_right(starts, epoch, key=lambda row: row.epoch)
    if epoch < 0 or (above == len(starts) and (not starts or starts[-1].epoch != epoch)):
        return EpochEnd(UNDEFINED, UNDEFINED)
    if above == len(starts):
        return EpochEnd(epoch, end_offset)
    known = starts[above - 1].epoch if above > 0 else epoch
    return EpochEnd(known, starts[above].start_offset)
