"""The lifecycle of a group: from one generation to the next, and its time-outs.

This part of the state machine handles no requests: `Group` in `group.py` adds them. It is pure.
Times are in milliseconds of the caller's clock.
"""

from __future__ import annotations

from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import (
    Effects,
    EmptySave,
    GenerationSave,
    GroupSnapshot,
    GroupState,
    JoinedMember,
    JoinResult,
    ReplacementSave,
    Response,
    Save,
    SyncResult,
    Ticket,
)
from neve.coordinator.members import GroupMembers, Member
from neve.coordinator.subscription import CONSUMER_PROTOCOL, all_subscribed
from neve.settings import GroupSettings

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member cannot send heartbeats while it waits for its first response, and the group does not
see whether its connection is open. After this time it is removed, as in Kafka."""

PENDING_MEMBER_MS_MAX = 10_000
"""How long an id that was sent before joining is kept. Clients join with it at once; one that joins
later has to start again. Sessions may last for half an hour, and asking for an id is cheap, so ids
are not kept for a whole session."""

POSTPONED_JOIN_MS_MIN = 1_000
"""The shortest pause before a rebalance that no member has joined is checked again."""


class GroupLifecycle:
    """The state of one group, and its time-outs."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed: frozenset[str] | None = None
        """The topics to which members are subscribed; None if that is unknown."""
        self.members = GroupMembers()
        self.wake_ms: int | None = None
        self.bytes_max = settings.metadata_bytes_max
        """The limit of `taken_bytes`. The group table lowers it if other groups leave less."""
        self.assigned_bytes = 0
        self.has_record = False
        """Whether a record of the group was written or is in flight."""
        self._effects = Effects()
        self._pending: dict[str, int] = {}  # ids sent and not yet joined, with their deadlines
        self._unsynced: dict[str, None] = {}  # members of this generation that have not synced
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._delay_left_ms: int | None = None  # only while the first members of a group join
        self._newcomer = False  # a member joined during that delay, so it may be prolonged
        self._saving: GenerationSave | None = None
        self._awaited: dict[Save, int] = {}  # records that members wait for, and until when

    @property
    def taken_bytes(self) -> int:
        """The bytes of the members' metadata and assignments."""
        return self.members.metadata_bytes + self.assigned_bytes

    # -- time

    def tick(self, now_ms: int) -> Effects:
        """Do whatever is due by now."""
        effects = self._begin()
        for member_id in [each for each, due in self._pending.items() if due <= now_ms]:
            del self._pending[member_id]
            self._try_complete(now_ms)
        for member in self.members:
            is_due = member.session_deadline_ms <= now_ms and not member.counts_as_alive
            if is_due and self.members.get(member.member_id) is member:
                self._remove(member, now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_time_is_up(now_ms)
        for save in [each for each, due in self._awaited.items() if due <= now_ms]:
            self._store_is_late(now_ms, save)
        self.wake_ms = min(self._deadlines(), default=None)
        return effects

    def _deadlines(self) -> list[int]:
        found = [each.session_deadline_ms for each in self.members if not each.counts_as_alive]
        found += self._pending.values()
        found += self._awaited.values()
        found += [
            each for each in (self._join_deadline_ms, self._sync_deadline_ms) if each is not None
        ]
        return found

    def _arm(self, deadline_ms: int) -> int:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def _touch(self, member: Member, now_ms: int) -> None:
        """Restart a member's session after a sign of life."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session_deadline_ms = self._arm(now_ms + timeout_ms)

    # -- responding

    def _begin(self) -> Effects:
        self._effects = Effects()
        return self._effects

    def _respond(self, ticket: Ticket, reply: JoinResult | SyncResult) -> None:
        if ticket is not None:
            self._effects.responses.append(Response(ticket, reply))

    def _respond_to_sync(self, member: Member, now_ms: int, error: GroupError | None) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is None:
            return
        # The session could not expire while the member waited, so it starts again now.
        self._touch(member, now_ms)
        self._respond(ticket, SyncResult(error=error) if error else self._sync_result(member))

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _generation_result(self, member: Member) -> JoinResult:
        """Return the result of joining the current generation. The leader's lists all members."""
        leads = member.member_id == self.members.leader_id
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.members.leader_id or "",
            members=self._joined() if leads else (),
        )

    def _joined(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol_name))
            for each in self.members
        )

    # -- gathering members

    def _rebalance(self, now_ms: int) -> None:
        """Ask all members to join again, including those that wait for an assignment."""
        if self.state is GroupState.COMPLETING:
            self._refuse_syncs(now_ms, GroupError.REBALANCE_IN_PROGRESS)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        delay_ms = self.settings.initial_rebalance_delay_ms
        timeout_ms = self.members.rebalance_timeout_ms
        if self.state is GroupState.EMPTY and delay_ms:
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._join_deadline_ms = self._arm(now_ms + delay_ms)
        else:
            self._delay_left_ms = None
            self._join_deadline_ms = self._arm(now_ms + timeout_ms)
        self._newcomer = False
        self.state = GroupState.PREPARING
        self._try_complete(now_ms)

    def _refuse_syncs(self, now_ms: int, error: GroupError) -> None:
        if self._saving is not None:
            self._awaited.pop(self._saving, None)
        self._saving = None
        self.assigned_bytes = 0
        for member in self.members:
            member.assignment = b""
            self._respond_to_sync(member, now_ms, error)

    def _try_complete(self, now_ms: int) -> None:
        """Complete the rebalance if all members, also pending ones, have joined.

        The initial delay of an empty group is never cut short.
        """
        if (
            self.state is GroupState.PREPARING
            and self._delay_left_ms is None
            and self.members.all_joining
            and not self._pending
        ):
            self._complete(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self._delay_left_ms and self._newcomer:
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._newcomer = False
            self._join_deadline_ms = self._arm(now_ms + delay_ms)
        else:
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """Start the next generation with the members that joined and all static members.

        If none of the static members has joined, the rebalance is extended instead.
        """
        for member in self.members:
            if member.join_ticket is None and member.instance_id is None:
                self._drop(member)
        if len(self.members) and not self.members.elect_joining_leader():
            pause_ms = max(self.members.rebalance_timeout_ms, POSTPONED_JOIN_MS_MIN)
            self._delay_left_ms = None
            self._join_deadline_ms = self._arm(now_ms + pause_ms)
            return
        self.generation += 1
        self._join_deadline_ms = None
        self._delay_left_ms = None
        if len(self.members):
            self._hand_out_generation(now_ms)
        else:
            self.protocol_name = None
            self.assigned_bytes = 0
            self.state = GroupState.EMPTY
            self._note_subscriptions()
            if self.has_record:
                self._save(EmptySave(self.snapshot({})))

    def _hand_out_generation(self, now_ms: int) -> None:
        self.protocol_name = self.members.choose_protocol()
        self.state = GroupState.COMPLETING
        self._note_subscriptions()
        for member in self.members:
            self._respond(self.members.take_join(member), self._generation_result(member))
            member.is_new = False
            self._touch(member, now_ms)
            self._unsynced[member.member_id] = None
        self._sync_deadline_ms = self._arm(now_ms + self.members.rebalance_timeout_ms)

    def _note_subscriptions(self) -> None:
        self.subscribed = None
        if self.protocol_type == CONSUMER_PROTOCOL:
            self.subscribed = all_subscribed(
                each.metadata(self.protocol_name) for each in self.members
            )

    def _sync_time_is_up(self, now_ms: int) -> None:
        """Remove members that joined and did not ask for their assignment, and rebalance."""
        for member_id in list(self._unsynced):
            member = self.members.get(member_id)
            if member is not None:
                self._drop(member)
        self._rebalance(now_ms)

    # -- losing members

    def _drop(self, member: Member) -> None:
        """Remove a member; its waiting requests get UNKNOWN_MEMBER.

        The caller starts or completes a rebalance if that is necessary.
        """
        unknown = GroupError.UNKNOWN_MEMBER
        self._respond(self.members.take_join(member), JoinResult(error=unknown))
        ticket, member.sync_ticket = member.sync_ticket, None
        self._respond(ticket, SyncResult(error=unknown))
        self._unsynced.pop(member.member_id, None)
        self.members.remove(member)

    def _remove(self, member: Member, now_ms: int) -> None:
        self._drop(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(now_ms)
        else:
            self._try_complete(now_ms)

    # -- records

    def snapshot(self, assignments: dict[str, bytes]) -> GroupSnapshot:
        return GroupSnapshot(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.members.leader_id,
            members=tuple(
                each.snapshot(self.protocol_name, assignments.get(each.member_id, b""))
                for each in self.members
            ),
        )

    def _save(self, save: Save) -> None:
        self.has_record = True
        self._effects.saves.append(save)

    def _await_save(self, now_ms: int, save: Save) -> None:
        """Let members wait for this record, for at most offsets.commit.timeout.ms."""
        if save not in self._awaited:
            self._awaited[save] = self._arm(now_ms + self.settings.offsets_timeout_ms)

    def _store_is_late(self, now_ms: int, save: Save) -> None:
        """Respond to members that wait for a late record with UNAVAILABLE, so that they retry.

        Their heartbeats wait behind these requests. A late assignment stays in flight and the
        generation does not change: members that join again get the same generation and wait for the
        same record, and no second one is written.
        """
        del self._awaited[save]
        if save is self._saving:
            for member in self.members:
                self._respond_to_sync(member, now_ms, GroupError.UNAVAILABLE)
        elif isinstance(save, ReplacementSave):
            self._replacement_failed(now_ms, save, GroupError.UNAVAILABLE)

    def saved(self, now_ms: int, save: Save) -> Effects:
        """Handle the commit of a record. If the group no longer waits for it, nothing changes."""
        effects = self._begin()
        self._awaited.pop(save, None)
        if self._saving is not None and save is self._saving:
            assignments, self._saving = self._saving.assignments, None
            for member in self.members:
                member.assignment = assignments.get(member.member_id, b"")
                self._respond_to_sync(member, now_ms, None)
            self.state = GroupState.STABLE
        elif isinstance(save, ReplacementSave):
            self._replacement_saved(now_ms, save)
        return effects

    def save_failed(self, now_ms: int, save: Save, error: GroupError) -> Effects:
        """Handle the failed commit of a record. No member gets its content."""
        effects = self._begin()
        self._awaited.pop(save, None)
        if save is self._saving:
            self._refuse_syncs(now_ms, error)
            self._rebalance(now_ms)
        elif isinstance(save, ReplacementSave):
            self._replacement_failed(now_ms, save, error)
        return effects

    def _replaced(self, save: ReplacementSave) -> Member | None:
        """Return the member that still waits for this record, or None.

        In a rebalance it does not: the next generation responds to its request.
        """
        member = self.members.get(save.new_id)
        is_current = save.snapshot.generation == self.generation
        if self.state is GroupState.STABLE and is_current and member is not None:
            return member if member.join_ticket is not None else None
        return None

    def _replacement_saved(self, now_ms: int, save: ReplacementSave) -> None:
        member = self._replaced(save)
        if member is None:
            return
        leads = member.member_id == self.members.leader_id
        skips = save.knows_skip_assignment
        # A client that does not know skip_assignment must not see that it leads, or it would send
        # an assignment that a stable group ignores.
        reply = JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=(self.members.leader_id or "") if skips else save.old_leader_id,
            skip_assignment=skips and leads,
            members=self._joined() if skips and leads else (),
        )
        self._respond(self.members.take_join(member), reply)
        self._touch(member, now_ms)

    def _replacement_failed(self, now_ms: int, save: ReplacementSave, error: GroupError) -> None:
        member = self._replaced(save)
        if member is None:
            return
        self._respond(self.members.take_join(member), JoinResult(error=error))
        self._rename(member, save.old_id)
        self.members.update(
            member, save.old_protocols, save.old_rebalance_timeout_ms, save.old_session_timeout_ms
        )
        self._touch(member, now_ms)

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id in self._unsynced:
            del self._unsynced[member.member_id]
            self._unsynced[member_id] = None
        self.members.rename(member, member_id)

    # -- the end

    def die(self, error: GroupError) -> Effects:
        """End the group here: it moved or is deleted. Waiting requests get `error`."""
        effects = self._begin()
        for member in self.members:
            self._respond(self.members.take_join(member), JoinResult(error=error))
            ticket, member.sync_ticket = member.sync_ticket, None
            self._respond(ticket, SyncResult(error=error))
        self._saving = None
        self.state = GroupState.DEAD
        self._pending.clear()
        self._awaited.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self.wake_ms = None
        return effects

    def revive(self) -> None:
        """Restore an empty group whose deletion could not be committed."""
        assert self.state is GroupState.DEAD
        assert len(self.members) == 0
        self.state = GroupState.EMPTY
