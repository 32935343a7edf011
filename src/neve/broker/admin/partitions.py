"""Operations on the partitions that this broker leads: find, delete records, measure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from neve.broker.errors import (
    DeletedOffsetError,
    FencedLeaderEpochError,
    InternalTopicError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from neve.errors import NeveError
from neve.log.segment.state_table import is_internal

if TYPE_CHECKING:
    from neve.broker.admin.changes import Changes
    from neve.broker.admin.topics import TopicAdmin
    from neve.cluster.node import Node
    from neve.cluster.partition_leader import PartitionLeader
    from neve.cluster.state import Topic
    from neve.log.partition import PartitionLog
    from neve.log.replica import ReplicaLog

NO_EPOCH = -1
"""What a client sends that knows no leader epoch."""

StillLeading: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks the store whether this process still leads. Raises UnavailableError if it is too slow."""


class LeadershipCheck:
    """One check for all partitions or groups of a request, begun after the request arrived.

    For answers that a successor could give differently.
    """

    def __init__(self, still_leading: StillLeading) -> None:
        self._still_leading = still_leading
        self._leads: bool | NeveError | TimeoutError | None = None

    async def __call__(self) -> bool:
        """Return whether this process still leads. The store is asked once.

        Raises UnavailableError if the store does not answer in time, or TimeoutError if an earlier
        call was cancelled by a deadline: further calls do not wait again.
        """
        if self._leads is None:
            try:
                self._leads = await self._still_leading()
            except NeveError as error:
                self._leads = error
            except asyncio.CancelledError:
                self._leads = TimeoutError("an earlier check of leadership took too long")
                raise
        if not isinstance(self._leads, bool):
            raise self._leads
        return self._leads

    async def check(self, leader: PartitionLeader) -> None:
        """Raise NotLeaderError if another process leads this partition now."""
        if not await self() or not leader.is_leading:
            raise NotLeaderError(f"another process leads {leader.name} now: ask for metadata again")


class PartitionAdmin:
    """The partitions that a node leads."""

    def __init__(self, node: Node, topics: TopicAdmin, still_leading: StillLeading) -> None:
        self._node = node
        self._topics = topics
        self._still_leading = still_leading

    def leader(self, name: str, number: int) -> PartitionLeader:
        """Return the leader of a partition.

        Raises NoTopicError, UnknownPartitionError, or NotLeaderError if this broker does not lead
        the partition.
        """
        topic = self._topics.find_partition(name, number)
        leader = self._node.leader_of(topic.id_bytes, number)
        if leader is None:
            raise NotLeaderError(
                f"this broker does not lead partition {number} of {name!r}: ask for metadata again"
            )
        return leader

    async def copy(self, name: str, number: int) -> ReplicaLog:
        """Return this follower's copy of a partition, and open it if necessary.

        Raises NoTopicError, or NotFollowedError if this broker does not follow its leader.
        """
        return await self._node.replication.replicas.open(self._topics.find(name), number)

    async def delete_records(
        self, name: str, number: int, before: int | None, changes: Changes
    ) -> int:
        """Delete the records before an offset, or all committed ones if it is None.

        Returns the new start offset of the log. Raises DeletedOffsetError if the offset lies
        outside the log.
        """
        if is_internal(name):
            raise InternalTopicError(
                f"{name} holds the broker's own state: its records cannot be deleted by clients"
            )
        leader = self.leader(name, number)
        # Where the log ends decides what is deleted.
        await changes.make(partial(LeadershipCheck(self._still_leading).check, leader))
        end = leader.log.high_watermark
        offset = end if before is None else before
        if not 0 <= offset <= end:
            raise DeletedOffsetError(
                f"offset {offset} does not exist in {leader.name}; valid offsets: 0-{end}"
            )
        await changes.make(partial(leader.move_start, offset))
        return leader.log.start_offset

    async def size_bytes(self, topic: Topic, number: int) -> int | None:
        """Return the bytes of a partition's segments and of its records that are not tiered.

        Returns None if this broker does not lead the partition.
        """
        leader = self._node.leader_of(topic.id_bytes, number)
        return None if leader is None else await _size_bytes(leader.log)

    def committed_ends(self, name: str) -> list[int | None]:
        """Return the high watermark of each partition of a topic, by number.

        It is None for a partition that another broker leads. A topic that does not exist has none.
        """
        topic = self._topics.get(name)
        if topic is None:
            return []
        numbers = range(len(topic.partitions))
        leaders = (self._node.leader_of(topic.id_bytes, number) for number in numbers)
        return [None if leader is None else leader.log.high_watermark for leader in leaders]


def check_epoch(leader: PartitionLeader, of_client: int) -> None:
    """Raise an error if the client knows an older or a newer leader epoch than the broker.

    This is Kafka's rule for every request that has a current_leader_epoch.
    """
    check_log_epoch(leader.log, of_client)


def check_log_epoch(log: PartitionLog | ReplicaLog, of_client: int) -> None:
    """Do the same for the log of a leader, or for the copy of a follower."""
    epoch = log.epoch
    if of_client in (NO_EPOCH, epoch):
        return
    if of_client < epoch:
        raise FencedLeaderEpochError(
            f"leader epoch {of_client} of {log.name} is over, the current one is {epoch}: "
            "ask for metadata again"
        )
    raise UnknownLeaderEpochError(
        f"leader epoch {of_client} of {log.name} is not known to this broker yet, the current "
        f"one is {epoch}: try again"
    )


async def _size_bytes(log: PartitionLog) -> int:
    state = log.manifest.state
    if state.removed:  # the counts of runs include segments that retention removed
        tiered = sum(segment.bytes for segment in await log.manifest.segments())
    else:
        tiered = sum(run.bytes for run in state.runs) + sum(row.bytes for row in state.loose)
    return tiered + log.tail_bytes
