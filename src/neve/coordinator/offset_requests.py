"""Requests about committed offsets, and the expiry of old offsets.

A commit gets its response when its record is committed. A fetch first checks that this process
still leads. It never returns offsets of a deleted topic, even if a new topic has the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from neve import runtime
from neve.coordinator.group_errors import GroupError, group_error_for
from neve.coordinator.group_messages import GroupState, Identity
from neve.coordinator.group_timers import monotonic_ms
from neve.coordinator.offsets import (
    NO_EPOCH,
    UNCOMMITTED,
    CommittedOffset,
    Idleness,
    TopicPartition,
)
from neve.coordinator.subscription import CONSUMER_PROTOCOL
from neve.coordinator.table import GroupTable, Slot
from neve.errors import NeveError
from neve.settings import GroupSettings

EXPIRIES_AT_ONCE = 64
"""How many groups' expired offsets are removed concurrently."""

StillLeading = Callable[[], Awaitable[bool]]
Outcomes = dict[TopicPartition, GroupError | None]
"""The outcome for each partition: the reason why it was refused, or None."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """The topics that offsets can be committed for."""

    def lookup(self, name: str) -> TopicFacts | None:
        """Return a topic as this process currently knows it; None if it does not."""
        ...

    async def refresh(self) -> None:
        """Read all changes of the cluster that were decided before this call."""
        ...


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    group_id: str
    offsets: Sequence[OffsetToCommit]
    identity: Identity = field(default_factory=lambda: Identity(""))
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    """The requested partitions, with offset -1 if nothing is committed. Empty on an error."""

    error: GroupError | None = None
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)


class OffsetRequests:
    """The requests about offsets, over the table of groups."""

    def __init__(self, settings: GroupSettings, topics: Topics, table: GroupTable) -> None:
        self.settings = settings
        self._topics = topics
        self._table = table

    async def commit_offsets(self, request: CommitRequest) -> Outcomes:
        """Commit offsets. If a partition is named twice, its last offset counts."""
        slot, error = self._slot_to_commit(request)
        if error is not None or slot is None:
            refused = error or GroupError.TOO_MANY_GROUPS
            return {(each.topic, each.partition): refused for each in request.offsets}
        outcomes, accepted = self._sorted_out(request.offsets)
        if accepted and not slot.offsets.fits(accepted):
            outcomes.update(dict.fromkeys(accepted, GroupError.OFFSETS_FULL))
            accepted = {}
        if accepted:
            written = await self._waited_for(self._table.write_offsets(slot, accepted))
            outcomes.update(dict.fromkeys(accepted, written))
        else:
            self._table.update(slot)
        return outcomes

    def _patience(self) -> asyncio.Timeout:
        """Return the deadline of a request that waits for the store.

        The client's heartbeats wait behind the request.
        """
        return runtime.deadline(self.settings.offsets_timeout_ms / 1000)

    async def _waited_for(self, outcome: Awaitable[GroupError | None]) -> GroupError | None:
        """Return the outcome of a change, or TIMED_OUT: it may then still be committed."""
        try:
            async with self._patience():
                return await outcome
        except TimeoutError:
            return GroupError.TIMED_OUT

    def _slot_to_commit(self, request: CommitRequest) -> tuple[Slot | None, GroupError | None]:
        error = self._table.serving_error(request.group_id, may_be_nameless=True)
        if error is not None:
            return None, error
        slot = self._table.get(request.group_id)
        if slot is None:
            # A client without a generation is not a member and only stores its offsets here.
            if request.generation >= 0:
                return None, GroupError.ILLEGAL_GENERATION
            return self._table.create(request.group_id), None
        found = slot.group.check_commit(monotonic_ms(), request.identity, request.generation)
        return slot, found

    def _sorted_out(
        self, offsets: Sequence[OffsetToCommit]
    ) -> tuple[Outcomes, dict[TopicPartition, CommittedOffset]]:
        outcomes: Outcomes = {}
        accepted: dict[TopicPartition, CommittedOffset] = {}
        now_ms = runtime.now_ms()
        for each in offsets:
            key = (each.topic, each.partition)
            topic = self._topics.lookup(each.topic)
            metadata = each.metadata or ""
            outcomes[key] = None
            accepted.pop(key, None)  # an earlier offset of the same partition
            if topic is None or not 0 <= each.partition < topic.partitions:
                outcomes[key] = GroupError.UNKNOWN_PARTITION
            elif len(metadata.encode()) > self.settings.offset_metadata_bytes_max:
                outcomes[key] = GroupError.METADATA_TOO_LARGE
            elif each.offset < 0:
                outcomes[key] = GroupError.NEGATIVE_OFFSET
            else:
                accepted[key] = CommittedOffset(
                    each.offset, each.leader_epoch, metadata, now_ms, topic.topic_id
                )
        return outcomes, accepted

    async def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[TopicPartition] | None,
        still_leading: StillLeading,
    ) -> FetchedOffsets:
        """Return the committed offsets of these partitions, or of all that have one."""
        try:
            async with self._patience():
                error = await self._fetch_fault(group_id, still_leading)
                if error is not None:
                    return FetchedOffsets(error=error)
                slot = self._table.get(group_id)
                orphans = {} if slot is None else await self._orphans(slot, wanted)
        except NeveError as failure:
            return FetchedOffsets(error=group_error_for(failure))
        except TimeoutError:
            return FetchedOffsets(error=GroupError.TIMED_OUT)
        if wanted is None:
            found = {} if slot is None else dict(slot.offsets.items())
            return FetchedOffsets(
                offsets={key: value for key, value in found.items() if key not in orphans}
            )
        return FetchedOffsets(
            offsets={
                key: UNCOMMITTED
                if slot is None or key in orphans
                else slot.offsets.get(key) or UNCOMMITTED
                for key in wanted
            }
        )

    async def _fetch_fault(self, group_id: str, still_leading: StillLeading) -> GroupError | None:
        error = self._table.serving_error(group_id, may_be_nameless=True)
        if error is None and not await still_leading():
            return GroupError.NOT_COORDINATOR
        # The partition may have been unloaded during the check.
        return error or self._table.serving_error(group_id, may_be_nameless=True)

    async def _orphans(
        self, slot: Slot, wanted: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, None]:
        """Return the partitions whose offsets belong to deleted topics, and remove these offsets.

        Reads the cluster log first: if another process coordinated the group before, an offset may
        belong to a topic that this process does not know yet.
        """
        if not slot.offsets.orphans(self._topic_id, wanted):
            return {}
        await self._topics.refresh()
        gone = dict.fromkeys(slot.offsets.orphans(self._topic_id, wanted))
        dropped = slot.offsets.settled(gone)
        if dropped:
            self._table.write_offsets(slot, dict.fromkeys(dropped))  # in the background
        return gone

    def _topic_id(self, name: str) -> bytes | None:
        topic = self._topics.lookup(name)
        return None if topic is None else topic.topic_id

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[GroupError | None, Outcomes]:
        """Delete offsets, except those of a topic that members read.

        Returns the outcome of the request, and one for each partition.
        """
        error = self._table.serving_error(group_id)
        slot = self._table.get(group_id)
        if error is not None or slot is None or slot.group.state is GroupState.DEAD:
            return error or GroupError.GROUP_NOT_FOUND, {}
        group = slot.group
        is_empty = group.state is GroupState.EMPTY
        if not is_empty and group.protocol_type != CONSUMER_PROTOCOL:
            return GroupError.GROUP_NOT_EMPTY, {}
        outcomes: Outcomes = {}
        for topic, partition in partitions:
            is_read = not is_empty and group.reads(topic)
            outcomes[topic, partition] = GroupError.SUBSCRIBED_TO_TOPIC if is_read else None
        known = slot.offsets.everything()
        removed = [key for key in known if key in outcomes and outcomes[key] is None]
        if removed:
            written = await self._waited_for(
                self._table.write_offsets(slot, dict.fromkeys(removed))
            )
            outcomes.update(dict.fromkeys(removed, written))
        return None, outcomes

    # -- expiry

    async def expire(self) -> None:
        """Drop offsets that are too old or whose topic is gone, then groups with nothing left."""
        if any(slot.offsets.orphans(self._topic_id) for slot in self._table):
            try:
                await self._topics.refresh()
            except NeveError:
                return  # the next run retries it
        begun: list[Awaitable[GroupError | None]] = []
        for slot in self._table:
            begun += self._expire_group(slot)
            if len(begun) >= EXPIRIES_AT_ONCE:
                await begun.pop(0)
            else:
                await runtime.sleep(0)
        for outcome in begun:
            await outcome

    def _expire_group(self, slot: Slot) -> list[Awaitable[GroupError | None]]:
        group, offsets = slot.group, slot.offsets
        if self._table.get(group.group_id) is not slot:
            return []  # dropped meanwhile; the group's name may belong to a new group
        idle = Idleness(
            state=group.state,
            state_since_ms=slot.state_since_ms,
            is_simple=group.protocol_type is None,
            subscribed=group.subscribed,
        )
        old = offsets.expired(runtime.now_ms(), self.settings.offsets_retention_ms, idle)
        gone = dict.fromkeys(offsets.settled([*old, *offsets.orphans(self._topic_id)]))
        is_leaving = group.state is GroupState.EMPTY and not group.has_pending_members
        if is_leaving and offsets.is_settled and len(gone) == len(offsets):
            return [self._table.delete(slot)]
        return [self._table.write_offsets(slot, gone)] if gone else []
