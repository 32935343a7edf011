"""Offsets of a partition by position in the log or by time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from neve.broker.admin.partitions import LeadershipCheck
    from neve.cluster.partition_leader import PartitionLeader
    from neve.log.partition import PartitionLog
    from neve.log.reading.leader.reader import LogReader
    from neve.log.replica import ReplicaLog

NONE = -1


class OffsetSpec(IntEnum):
    """A position in a log. Kafka's requests have these numbers in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class FoundOffset(NamedTuple):
    """An offset with its timestamp and leader epoch, each NONE if there is none."""

    offset: int = NONE
    timestamp: int = NONE
    leader_epoch: int = NONE


def is_search(spec: int) -> bool:
    """Whether batches may have to be read and decompressed to find this offset."""
    return spec >= 0 or spec == OffsetSpec.MAX_TIMESTAMP


class OffsetAdmin:
    """Finds offsets in the logs that a broker leads."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    async def find(self, leader: PartitionLeader, spec: int, check: LeadershipCheck) -> FoundOffset:
        """Return the offset at an OffsetSpec, or the first at or after a timestamp in ms.

        Where a successor could answer differently, raises NotLeaderError if this broker has been
        deposed, and UnavailableError if the store does not answer in time.
        """
        return await self._find(leader.log, spec, partial(check.check, leader))

    async def find_in_copy(self, log: ReplicaLog, spec: int) -> FoundOffset:
        """Do the same in the copy of a follower, up to the last record that it has seen."""

        async def accept() -> None:
            pass

        return await self._find(log, spec, accept)

    async def _find(
        self, log: PartitionLog | ReplicaLog, spec: int, confirm: Callable[[], Awaitable[None]]
    ) -> FoundOffset:
        match spec:
            case OffsetSpec.LATEST:
                await confirm()
                return _with_epoch(log, log.high_watermark)
            case OffsetSpec.EARLIEST:
                return _with_epoch(log, log.start_offset)
            case OffsetSpec.EARLIEST_LOCAL:
                return _with_epoch(log, max(log.start_offset, log.tiered_offset))
            case OffsetSpec.LATEST_TIERED:
                return _with_epoch(log, log.tiered_offset - 1)
            case OffsetSpec.MAX_TIMESTAMP:
                found = await self._reader.max_timestamp(log)
                await confirm()
            case _:
                found = await self._reader.offset_for_time(log, spec)
                # The first record of a time stays the first. If there was none, a successor may
                # have one by now, and the client would skip it and go on at the end.
                if found is None:
                    await confirm()
        return FoundOffset() if found is None else _with_epoch(log, *found)


def _with_epoch(log: PartitionLog | ReplicaLog, offset: int, timestamp: int = NONE) -> FoundOffset:
    if offset == NONE:
        return FoundOffset(offset, timestamp)
    starts = (start.epoch for start in reversed(log.epochs) if start.start_offset <= offset)
    return FoundOffset(offset, timestamp, next(starts, NONE))
