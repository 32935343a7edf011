"""One group of the classic protocol, as a pure state machine.

No clock and no I/O: the caller passes time, tickets and new member ids, and every step returns the
`Effects` that the caller carries out: responses to send, records to append. It promises:

- each ticket gets exactly one response, when a time-out expires at the latest;
- a generation's assignments are sent only after the record that holds them is committed, each
  member's part exactly as the leader sent it;
- generation numbers only increase, and each generation has one leader;
- `wake_ms` is never later than the next moment at which `tick` has something to do.

What clients can see follows Kafka's coordinator; docs/contributors/groups.md says where it differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_lifecycle import PENDING_MEMBER_MS_MAX, GroupLifecycle
from neve.coordinator.group_messages import (
    NO_MEMBER,
    Effects,
    GenerationSave,
    GroupDescription,
    GroupSnapshot,
    GroupState,
    Identity,
    JoinRequest,
    JoinResult,
    ReplacementSave,
    SyncRequest,
    SyncResult,
    Ticket,
)
from neve.coordinator.members import Member, member_from, protocol_bytes
from neve.coordinator.subscription import CONSUMER_PROTOCOL, subscribed_topics
from neve.settings import GroupSettings


class Group(GroupLifecycle):
    """One group: its requests, on top of its lifecycle."""

    @classmethod
    def restored(
        cls, snapshot: GroupSnapshot, settings: GroupSettings, now_ms: int
    ) -> tuple[Group, Effects]:
        """Restore a group from its record. Its members get a full session time-out to heartbeat."""
        group = cls(snapshot.group_id, settings)
        group.protocol_type = snapshot.protocol_type or None
        group.generation = snapshot.generation
        group.has_record = True
        for each in snapshot.members:
            member = Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                ((snapshot.protocol_name or "", each.subscription),),
                each.assignment,
            )
            group.members.add(member)
            group.assigned_bytes += len(each.assignment)
            group._touch(member, now_ms)
        if snapshot.members:
            group.state = GroupState.STABLE
            group.protocol_name = snapshot.protocol_name or ""
            if snapshot.leader_id and group.members.get(snapshot.leader_id) is not None:
                group.members.leader_id = snapshot.leader_id
        group._note_subscriptions()
        effects = group._begin()
        if len(group.members) > settings.size_max:
            group._rebalance(now_ms)
        return group, effects

    @property
    def is_forgettable(self) -> bool:
        """Whether it can be dropped: it has no record, no member and no pending member."""
        return self.state is GroupState.EMPTY and not self._pending and not self.has_record

    @property
    def has_pending_members(self) -> bool:
        return bool(self._pending)

    def reads(self, topic: str) -> bool:
        """Whether members are subscribed to a topic; True if their subscriptions are unknown."""
        return self.subscribed is None or topic in self.subscribed

    # -- joining

    def join(
        self, now_ms: int, ticket: Ticket, request: JoinRequest, new_member_id: str
    ) -> Effects:
        """Handle a request to join the next generation.

        `new_member_id` is the id of a member that has none yet.
        """
        effects = self._begin()
        error = self._join_refusal(request, now_ms)
        if error is not None:
            is_full = error is GroupError.GROUP_FULL
            member_id = NO_MEMBER if is_full else request.member_id
            self._respond(ticket, JoinResult(error=error, member_id=member_id))
        elif request.member_id == NO_MEMBER:
            self._newcomer_joins(now_ms, ticket, request, new_member_id)
        elif request.member_id in self._pending:
            self._pending_joins(now_ms, ticket, request)
        else:
            self._member_joins(now_ms, ticket, request)
        self._try_complete(now_ms)
        return effects

    def _join_refusal(self, request: JoinRequest, now_ms: int) -> GroupError | None:
        shortest, longest = (
            self.settings.min_session_timeout_ms,
            self.settings.max_session_timeout_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            return GroupError.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return GroupError.UNAVAILABLE
        if not self._has_room(request):
            self._pending.pop(request.member_id, None)
            member = self.members.get(request.member_id)
            if member is not None:
                self._remove(member, now_ms)
            return GroupError.GROUP_FULL
        if not self._supports(request):
            return GroupError.INCONSISTENT_PROTOCOL
        return None

    def _has_room(self, request: JoinRequest) -> bool:
        known_id = self.members.id_of_instance(request.instance_id) or request.member_id
        member = self.members.get(known_id)
        grown_by = protocol_bytes(request.protocols)
        if member is not None:
            grown_by -= protocol_bytes(member.protocols)
        if grown_by > 0 and self.taken_bytes + grown_by > self.bytes_max:
            return False
        if self.state is GroupState.PREPARING:
            # Waiting members count, so that a group that is too large loses those that join last.
            is_waiting = member is not None and member.join_ticket is not None
            return is_waiting or self.members.joining_count < self.settings.size_max
        return member is not None or len(self.members) < self.settings.size_max

    def _supports(self, request: JoinRequest) -> bool:
        names = [name for name, _ in request.protocols]
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and names)
        return request.protocol_type == self.protocol_type and self.members.supported_by_all(names)

    def _newcomer_joins(
        self, now_ms: int, ticket: Ticket, request: JoinRequest, new_member_id: str
    ) -> None:
        old_id = self.members.id_of_instance(request.instance_id)
        old = self.members.get(old_id) if old_id is not None else None
        if old is not None:
            self._replace_static(now_ms, ticket, request, old, new_member_id)
        elif request.instance_id is None and request.id_round_trip:
            if len(self._pending) >= self.settings.size_max:
                self._respond(ticket, JoinResult(error=GroupError.GROUP_FULL))
                return
            kept_ms = min(request.session_timeout_ms, PENDING_MEMBER_MS_MAX)
            self._pending[new_member_id] = self._arm(now_ms + kept_ms)
            required = GroupError.MEMBER_ID_REQUIRED
            self._respond(ticket, JoinResult(error=required, member_id=new_member_id))
        else:
            self._add(now_ms, ticket, request, new_member_id)

    def _pending_joins(self, now_ms: int, ticket: Ticket, request: JoinRequest) -> None:
        if request.instance_id is not None:  # only dynamic members get an id before they join
            unknown = GroupError.UNKNOWN_MEMBER
            self._respond(ticket, JoinResult(error=unknown, member_id=request.member_id))
            return
        del self._pending[request.member_id]
        self._add(now_ms, ticket, request, request.member_id)

    def _add(self, now_ms: int, ticket: Ticket, request: JoinRequest, member_id: str) -> None:
        if self.state is GroupState.PREPARING and self.generation == 0:
            self._newcomer = True
        if not len(self.members):
            self.protocol_type = request.protocol_type
        member = member_from(request, member_id)
        member.is_new = True
        self._touch(member, now_ms)
        self.members.add(member)
        self.members.wait_join(member, ticket)
        if self.state is not GroupState.PREPARING:
            self._rebalance(now_ms)

    def _member_joins(self, now_ms: int, ticket: Ticket, request: JoinRequest) -> None:
        error = self._stranger(request.member_id, request.instance_id)
        member = self.members.get(request.member_id)
        if error is not None or member is None:
            unknown = error or GroupError.UNKNOWN_MEMBER
            self._respond(ticket, JoinResult(error=unknown, member_id=request.member_id))
            return
        is_same = member.protocols == request.protocols
        leads = member.member_id == self.members.leader_id
        # A leader of a stable group joins again to trigger a new assignment, although nothing
        # about itself has changed. Another member that changed nothing has missed a response.
        settled = self.state is GroupState.COMPLETING or (
            self.state is GroupState.STABLE and not leads
        )
        self._touch(member, now_ms)
        if is_same and settled:
            self._respond(ticket, self._generation_result(member))
            return
        self._update(member, request)
        self._wait_join(member, ticket)
        if self.state is not GroupState.PREPARING:
            self._rebalance(now_ms)

    def _update(self, member: Member, request: JoinRequest) -> None:
        self.members.update(
            member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms
        )

    def _wait_join(self, member: Member, ticket: Ticket) -> None:
        replaced = self.members.wait_join(member, ticket)
        again = GroupError.REBALANCE_IN_PROGRESS
        self._respond(replaced, JoinResult(error=again, member_id=member.member_id))

    def _replace_static(
        self, now_ms: int, ticket: Ticket, request: JoinRequest, member: Member, new_id: str
    ) -> None:
        """Handle the restart of a static member: it keeps its place, and its old id is fenced."""
        old_id, old_leader_id = member.member_id, self.members.leader_id or NO_MEMBER
        old_protocols = member.protocols
        old_timeouts_ms = member.rebalance_timeout_ms, member.session_timeout_ms
        fenced = GroupError.FENCED_INSTANCE
        self._respond(self.members.take_join(member), JoinResult(error=fenced, member_id=old_id))
        sync_ticket, member.sync_ticket = member.sync_ticket, None
        self._respond(sync_ticket, SyncResult(error=fenced))
        self._rename(member, new_id)
        self._update(member, request)
        member.client_id, member.client_host = request.client_id, request.client_host
        self.members.wait_join(member, ticket)
        self._touch(member, now_ms)
        if self.state is GroupState.STABLE and self._is_content(member, old_protocols):
            save = ReplacementSave(
                self.snapshot({each.member_id: each.assignment for each in self.members}),
                old_id=old_id,
                new_id=new_id,
                old_leader_id=old_leader_id,
                old_protocols=old_protocols,
                old_rebalance_timeout_ms=old_timeouts_ms[0],
                old_session_timeout_ms=old_timeouts_ms[1],
                knows_skip_assignment=request.knows_skip_assignment,
            )
            self._save(save)
            self._await_save(now_ms, save)
        elif self.state is not GroupState.PREPARING:
            self._rebalance(now_ms)

    def _is_content(self, member: Member, old_protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether the current assignment still suits a static member that has restarted.

        Its metadata may differ, because consumers include the partitions that they own. What
        counts is the protocol that would be chosen and, for consumers, the topics.
        """
        name = self.protocol_name
        if self.members.choose_protocol() != name:
            return False
        if self.protocol_type != CONSUMER_PROTOCOL:
            return True
        old_metadata = dict(old_protocols).get(name or "", b"")
        return subscribed_topics(old_metadata) == subscribed_topics(member.metadata(name))

    # -- the requests of members

    def _stranger(self, member_id: str, instance_id: str | None) -> GroupError | None:
        """Return why a request is not from a current member; None if it is."""
        if instance_id is not None:
            current_id = self.members.id_of_instance(instance_id)
            if current_id is None:
                return GroupError.UNKNOWN_MEMBER
            if current_id != member_id:
                return GroupError.FENCED_INSTANCE
        return None if self.members.get(member_id) is not None else GroupError.UNKNOWN_MEMBER

    def _member_fault(self, identity: Identity, generation: int) -> GroupError | None:
        if self.state is GroupState.DEAD:
            return GroupError.UNAVAILABLE
        error = self._stranger(identity.member_id, identity.instance_id)
        if error is None and generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return error

    def sync(self, now_ms: int, ticket: Ticket, request: SyncRequest) -> Effects:
        """Handle a member's request for its assignment; the leader's has those of all members."""
        effects = self._begin()
        member = self.members.get(request.member_id)
        error = self._sync_refusal(request)
        if error is not None or member is None:
            self._respond(ticket, SyncResult(error=error or GroupError.UNKNOWN_MEMBER))
            return effects
        self._synced(member)
        if self.state is GroupState.STABLE:
            self._touch(member, now_ms)
            self._respond(ticket, self._sync_result(member))
            return effects
        replaced, member.sync_ticket = member.sync_ticket, ticket
        self._respond(replaced, SyncResult(error=GroupError.REBALANCE_IN_PROGRESS))
        if member.member_id == self.members.leader_id and self._saving is None:
            self._save_generation(now_ms, request)
        if self._saving is not None:
            self._await_save(now_ms, self._saving)
        return effects

    def _sync_refusal(self, request: SyncRequest) -> GroupError | None:
        identity = Identity(request.member_id, request.instance_id)
        error = self._member_fault(identity, request.generation)
        if error is not None:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return GroupError.INCONSISTENT_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return GroupError.INCONSISTENT_PROTOCOL
        if self.state is GroupState.PREPARING:
            return GroupError.REBALANCE_IN_PROGRESS
        return None

    def _synced(self, member: Member) -> None:
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _save_generation(self, now_ms: int, request: SyncRequest) -> None:
        assignments = {
            each.member_id: request.assignments.get(each.member_id, b"") for each in self.members
        }
        assigned_bytes = sum(map(len, assignments.values()))
        if self.members.metadata_bytes + assigned_bytes > self.bytes_max:
            self._refuse_syncs(now_ms, GroupError.ASSIGNMENT_TOO_LARGE)
            self._rebalance(now_ms)
            return
        self.assigned_bytes = assigned_bytes
        self._saving = GenerationSave(self.snapshot(assignments), assignments)
        self._save(self._saving)

    def heartbeat(self, now_ms: int, identity: Identity, generation: int) -> GroupError | None:
        """Restart a member's session. Returns REBALANCE_IN_PROGRESS if it has to join again."""
        error = self._member_fault(identity, generation)
        member = self.members.get(identity.member_id)
        if error is not None or member is None:
            return error or GroupError.UNKNOWN_MEMBER
        self._touch(member, now_ms)
        if self.state is GroupState.PREPARING:
            return GroupError.REBALANCE_IN_PROGRESS
        return None

    def leave(
        self, now_ms: int, leaving: Sequence[Identity]
    ) -> tuple[list[GroupError | None], Effects]:
        """Remove members: each by its id, or a static one by its instance id alone.

        Returns the outcome for each of them.
        """
        effects = self._begin()
        return [self._leave(now_ms, each) for each in leaving], effects

    def _leave(self, now_ms: int, identity: Identity) -> GroupError | None:
        if self.state is GroupState.DEAD:
            return GroupError.UNAVAILABLE
        if identity.member_id in self._pending:
            del self._pending[identity.member_id]
            self._try_complete(now_ms)
            return None
        member_id = identity.member_id
        if member_id == NO_MEMBER:
            member_id = self.members.id_of_instance(identity.instance_id) or NO_MEMBER
        error = self._stranger(member_id, identity.instance_id)
        member = self.members.get(member_id)
        if error is not None or member is None:
            return error or GroupError.UNKNOWN_MEMBER
        self._remove(member, now_ms)
        return None

    def check_commit(self, now_ms: int, identity: Identity, generation: int) -> GroupError | None:
        """Check whether a client may commit offsets. Returns None if it may.

        A current member may. A client that names no generation may if the group is empty.
        """
        if self.state is GroupState.DEAD:
            return GroupError.UNAVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        error = self._member_fault(identity, generation)
        member = self.members.get(identity.member_id)
        if error is not None or member is None:
            return error or GroupError.UNKNOWN_MEMBER
        if self.state is GroupState.COMPLETING:
            return GroupError.REBALANCE_IN_PROGRESS
        self._touch(member, now_ms)
        return None

    def describe(self) -> GroupDescription:
        """Describe the group for admin tools; metadata and assignments only if it is stable."""
        is_stable = self.state is GroupState.STABLE
        name = self.protocol_name if is_stable else None
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_name=name or "",
            members=tuple(
                each.snapshot(name, each.assignment if is_stable else b"") for each in self.members
            ),
        )
