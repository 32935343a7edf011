"""Partitions that this broker leads: find, check that it still leads, delete records, measure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neve.broker.errors import (
    DeletedOffsetError,
    FencedLeaderEpochError,
    InternalTopicError,
    NotLeaderError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
)
from neve.log.segment.state_table import is_internal

if TYPE_CHECKING:
    from neve.broker.admin.changes import Changes
    from neve.broker.broker import Broker
    from neve.cluster.partition_leader import PartitionLeader
    from neve.log.partition import PartitionLog

_NO_EPOCH = -1


def led_partition(broker: Broker, name: str, number: int) -> PartitionLeader:
    """The leader of a partition. Raises NotLeaderError if this broker does not lead it."""
    topic = broker.topics.find(name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownPartitionError(
            f"topic {name!r} has no partition {number}: it has {len(topic.partitions)}"
        )
    leader = broker.node.leader_of(topic.id_bytes, number)
    if leader is None:
        raise NotLeaderError(
            f"this broker does not lead partition {number} of {name!r}: ask for metadata again"
        )
    return leader


def check_epoch(leader: PartitionLeader, of_client: int) -> None:
    """Raise an error if the client knows an older or a newer leader epoch than the broker."""
    epoch = leader.log.epoch
    if of_client in (_NO_EPOCH, epoch):
        return
    if of_client < epoch:
        raise FencedLeaderEpochError(
            f"leader epoch {of_client} is over, it is {epoch} now: ask for metadata again"
        )
    raise UnknownLeaderEpochError(
        f"leader epoch {of_client} is not known here yet, only {epoch}: try again"
    )


class LeadershipCheck:
    """One check for all partitions or groups of a request: it begins after the request came.

    For answers that a successor could give otherwise.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._leads: bool | None = None

    async def __call__(self) -> bool:
        """Whether this process still leads. Raises UnavailableError if the store is too slow."""
        if self._leads is None:
            self._leads = await self._broker.still_leading()
        return self._leads

    async def check(self, leader: PartitionLeader) -> None:
        """Raise NotLeaderError if another process leads this partition now."""
        if not await self() or not leader.is_leading:
            raise NotLeaderError(f"another process leads {leader.name} now: ask for metadata again")


async def delete_records(
    broker: Broker, name: str, number: int, before: int | None, changes: Changes
) -> int:
    """Delete the records before an offset, or all that are committed if it is None.

    Returns the offset at which the log starts then.
    """
    if is_internal(name):
        raise InternalTopicError(f"records of {name} are the broker's own")
    leader = led_partition(broker, name, number)
    # Where the log ends decides what is deleted.
    await changes.make(partial(LeadershipCheck(broker).check, leader))
    end = leader.log.high_watermark
    offset = end if before is None else before
    if not 0 <= offset <= end:
        raise DeletedOffsetError(f"{leader.name} has no offset {offset}: it ends at {end}")
    await changes.make(partial(leader.move_start, offset))
    return leader.log.start_offset


async def size_bytes(log: PartitionLog) -> int:
    """Bytes of a partition's segments, and of its records that are not in segments yet."""
    state = log.manifest.state
    if state.removed:  # what runs count includes what retention took out of them
        tiered = sum(segment.bytes for segment in await log.manifest.segments())
    else:
        tiered = sum(run.bytes for run in state.runs) + sum(row.bytes for row in state.loose)
    return tiered + log.tail_bytes
