"""The group coordinator: every request about groups and their offsets, over many groups.

Responses contain only committed state: assignments, offset commits and deletions get a response
once their record is committed, an offset fetch after a check that this process still leads. Methods
return refusals as a GroupError, and None for success. A request for a group that another process
coordinates gets NOT_COORDINATOR, and its client looks up the coordinator again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from neve import runtime
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import (
    GroupDescription,
    GroupState,
    Identity,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from neve.coordinator.group_timers import monotonic_ms
from neve.coordinator.offset_requests import OffsetRequests, Topics
from neve.coordinator.table import GroupTable, StateLog
from neve.serving.logs import event
from neve.settings import GroupSettings

_log = logging.getLogger(__name__)

GROUP_TYPE = "classic"
NAME_BYTES_MAX = 1024
"""The limit of names that clients choose, and that the records of every member contain."""
SHOWN_CHARACTERS_MAX = 100
"""How much of a group's name a log line shows."""
CLIENT_ID_CHARACTERS_MAX = 249
"""How much of a client's id is used in its member id, which its records contain."""
MEMBER_ID_BYTES_MAX = NAME_BYTES_MAX + 1 + 36
"""The limit of member ids: the instance or client id, a hyphen and a UUID."""


@dataclass(frozen=True, slots=True)
class GroupOverview:
    group_id: str
    protocol_type: str
    state: GroupState


class GroupSummary(NamedTuple):
    """One group, with its number of members and its committed offsets by topic and partition."""

    group_id: str
    state: GroupState
    members: int
    offsets: Mapping[str, Mapping[int, int]]


Complain = Callable[[str, str, str], None]
"""Logs a refusal: the client's address, the bound, the reason."""


class Groups(OffsetRequests):
    """All requests about groups. Call `start` in a running loop, and `close` at the end."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        on_failure: Callable[[BaseException], None] | None = None,
        complain: Complain = lambda *_: None,
        memory: runtime.MemoryBudget | None = None,
    ) -> None:
        super().__init__(settings, topics, GroupTable(settings, on_failure, memory))
        self._tasks = runtime.Tasks(on_failure)
        self._complain = complain

    def start(self) -> None:
        self._table.start()
        self._tasks.start(self._expire_for_ever(), name="offset expiry")

    async def close(self) -> None:
        """Respond to all waiting requests. Records that are not committed yet are abandoned."""
        await self._tasks.close()
        await self._table.close()

    def __len__(self) -> int:
        return len(self._table)

    def configure(self, settings: GroupSettings) -> None:
        """Apply changed settings to later requests."""
        self.settings = settings
        self._table.configure(settings)

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that keeps a group."""
        return self._table.partition_of(group_id)

    def spread_over(self, partitions: int) -> None:
        """Set the partition count of the internal topic, which may differ from the setting."""
        self._table.partitions = partitions

    def begin_load(self, partition: int) -> None:
        """Note that a partition's groups are being loaded: members wait, and stay here."""
        self._table.begin_load(partition)

    async def load(self, partition: int, rows: Mapping[bytes, bytes], log: StateLog) -> None:
        """Start to coordinate a partition's groups, from its state table."""
        await self._table.load(partition, rows, log)

    def unload(self, partition: int) -> None:
        """Stop coordinating a partition's groups."""
        self._table.unload(partition)

    # -- members

    async def join(self, request: JoinRequest) -> JoinResult:
        error = self._table.serving_error(request.group_id) or _name_fault(request)
        if error is not None:
            return JoinResult(error=error, member_id=request.member_id)
        slot = self._table.get(request.group_id)
        if slot is None and request.member_id:
            unknown = GroupError.UNKNOWN_MEMBER
            return JoinResult(error=unknown, member_id=request.member_id)
        slot = slot or self._table.create(request.group_id)
        if slot is None:
            count = len(self._table)
            self._refused(request, "groups.max", f"{count} groups are kept")
            return JoinResult(error=GroupError.TOO_MANY_GROUPS)
        ticket: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        name = request.instance_id or request.client_id[:CLIENT_ID_CHARACTERS_MAX]
        new_id = f"{name}-{uuid.UUID(bytes=runtime.token(16))}"
        self._table.limit_memory(slot)
        before = len(slot.group.members)
        effects = slot.group.join(monotonic_ms(), ticket, request, new_id)
        self._table.carry_out(slot, effects)
        if len(slot.group.members) > before:
            member = {"group": request.group_id, "member": request.member_id or new_id}
            event(_log, logging.DEBUG, "member joined", **member, client=request.client_id)
        reply = await ticket
        if reply.error is GroupError.GROUP_FULL:
            bound = "group.max.size, group.metadata.max.bytes and groups.metadata.max.bytes"
            self._refused(request, bound, "the group is full")
        return reply

    def _refused(self, request: JoinRequest, bound: str, reason: str) -> None:
        address = request.client_host.removeprefix("/")
        group = request.group_id[:SHOWN_CHARACTERS_MAX]
        self._complain(address, bound, f"refused to join group {group!r}: {reason} ({bound})")

    async def sync(self, request: SyncRequest) -> SyncResult:
        error = self._table.serving_error(request.group_id)
        if error is GroupError.LOADING:
            # The earlier coordinator's rebalance is lost, so the member has to join again.
            return SyncResult(error=GroupError.REBALANCE_IN_PROGRESS)
        slot = self._table.get(request.group_id)
        if error is not None or slot is None:
            return SyncResult(error=error or GroupError.UNKNOWN_MEMBER)
        ticket: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        self._table.limit_memory(slot)
        self._table.carry_out(slot, slot.group.sync(monotonic_ms(), ticket, request))
        return await ticket

    def heartbeat(self, group_id: str, identity: Identity, generation: int) -> GroupError | None:
        error = self._table.serving_error(group_id)
        if error is GroupError.LOADING:
            return None  # checked once its group is loaded
        slot = self._table.get(group_id)
        if error is not None or slot is None:
            return error or GroupError.UNKNOWN_MEMBER
        error = slot.group.heartbeat(monotonic_ms(), identity, generation)
        self._table.update(slot)
        return error

    def leave(
        self, group_id: str, leaving: Sequence[Identity]
    ) -> tuple[GroupError | None, list[GroupError | None]]:
        """Remove members. Returns the outcome of the request, and one for each leaving member."""
        error = self._table.serving_error(group_id)
        if error is not None:
            return error, []
        slot = self._table.get(group_id)
        if slot is None:
            return None, [GroupError.UNKNOWN_MEMBER for _ in leaving]
        if slot.group.state is GroupState.DEAD:
            return GroupError.UNAVAILABLE, []
        errors, effects = slot.group.leave(monotonic_ms(), leaving)
        self._table.carry_out(slot, effects)
        gone = errors.count(None)
        if gone:
            event(_log, logging.DEBUG, "members left", group=group_id, members=gone)
        return None, errors

    # -- describing and deleting groups

    def describe(self, group_id: str) -> tuple[GroupError | None, GroupDescription]:
        """The state of a group. One that does not exist is described as dead."""
        error = self._table.serving_error(group_id, may_be_nameless=True)
        slot = self._table.get(group_id)
        if error is None and slot is not None:
            return None, slot.group.describe()
        missing = GroupDescription(
            group_id=group_id,
            state=GroupState.DEAD,
            protocol_type="",
            protocol_name="",
            members=(),
        )
        return error or GroupError.GROUP_NOT_FOUND, missing

    def list_groups(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> tuple[GroupError | None, list[GroupOverview]]:
        """Return the groups that this process coordinates. An empty filter matches all.

        The error is LOADING if groups may be missing.
        """
        error = GroupError.LOADING if self._table.is_loading else None
        if types and GROUP_TYPE not in [each.lower() for each in types]:
            return error, []
        wanted = [each.lower() for each in states]
        return error, [
            GroupOverview(slot.group.group_id, slot.group.protocol_type or "", slot.group.state)
            for slot in self._table
            if not wanted or slot.group.state.lower() in wanted
        ]

    def summaries(self) -> Iterator[GroupSummary]:
        """Yield every group that this process coordinates, for metrics."""
        for slot in self._table:
            offsets: dict[str, dict[int, int]] = {}
            for (topic, partition), committed in slot.offsets.items():
                offsets.setdefault(topic, {})[partition] = committed.offset
            group = slot.group
            yield GroupSummary(group.group_id, group.state, len(group.members), offsets)

    async def delete_group(self, group_id: str) -> GroupError | None:
        error = self._table.serving_error(group_id, may_be_nameless=True)
        slot = self._table.get(group_id)
        if error is not None or slot is None or slot.group.state is GroupState.DEAD:
            return error or GroupError.GROUP_NOT_FOUND
        if slot.group.state is not GroupState.EMPTY:
            return GroupError.GROUP_NOT_EMPTY
        return await self._waited_for(self._table.delete(slot))

    async def _expire_for_ever(self) -> None:
        while True:
            await runtime.sleep(self.settings.offsets_check_interval_ms / 1000)
            await self.expire()


def _name_fault(request: JoinRequest) -> GroupError | None:
    names = [request.instance_id or "", request.protocol_type]
    names += [name for name, _ in request.protocols]
    is_too_long = any(len(name.encode()) > NAME_BYTES_MAX for name in names)
    if is_too_long or len(request.member_id.encode()) > MEMBER_ID_BYTES_MAX:
        return GroupError.NAME_TOO_LONG
    return None
