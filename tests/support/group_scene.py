"""A consumer group for scenarios: members act by name; the test controls time and commits.

`Scene` checks the invariants after every step: no ticket gets two responses, generations only grow,
and a response contains an assignment only after its record was committed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

from neve.coordinator.group import Group
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import (
    Effects,
    GenerationSave,
    GroupState,
    Identity,
    JoinRequest,
    JoinResult,
    Save,
    SyncRequest,
    SyncResult,
)
from neve.settings import GroupSettings

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's metadata, as the consumer protocol begins, with anything behind it."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 1, len(topics)) + names + owned


RANGE = (("range", subscription("orders")),)


@dataclass
class Ticket:
    """One request. `reply` stays None until it is answered."""

    name: str
    reply: Any = None

    @property
    def error(self) -> GroupError | None:
        assert self.reply is not None, f"{self.name} is not answered"
        error: GroupError | None = self.reply.error
        return error

    @property
    def is_waiting(self) -> bool:
        return self.reply is None


class Scene:
    def __init__(self, *, group: Group | None = None, **settings: int) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.group = group or Group("readers", self.settings)
        self.now_ms = 1_000
        self.saves: list[Save] = []
        self.committed: list[Save] = []
        self.tickets: list[Ticket] = []
        self._ids = 0
        self._highest_generation = self.group.generation

    # -- what members do

    def join(
        self,
        member_id: str = "",
        *,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        instance: str | None = None,
        **changes: Any,
    ) -> Ticket:
        request = JoinRequest(
            group_id="readers",
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_id=instance,
        )
        self._ids += 1
        ticket = Ticket(f"join {self._ids}")
        self.tickets.append(ticket)
        new_id = f"{instance or 'm'}-{self._ids}"
        self.take(self.group.join(self.now_ms, ticket, replace(request, **changes), new_id))
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        **changes: Any,
    ) -> Ticket:
        request = SyncRequest(
            group_id="readers",
            generation=self.group.generation if generation is None else generation,
            member_id=member_id,
            assignments=assignments or {},
        )
        ticket = Ticket(f"sync of {member_id}")
        self.tickets.append(ticket)
        self.take(self.group.sync(self.now_ms, ticket, replace(request, **changes)))
        return ticket

    def beat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> GroupError | None:
        current = self.group.generation if generation is None else generation
        return self.group.heartbeat(self.now_ms, Identity(member_id, instance), current)

    def leave(self, member_id: str = "", instance: str | None = None) -> GroupError | None:
        errors, effects = self.group.leave(self.now_ms, [Identity(member_id, instance)])
        self.take(effects)
        return errors[0]

    def commit_check(
        self, member_id: str = "", *, generation: int = -1, instance: str | None = None
    ) -> GroupError | None:
        return self.group.check_commit(self.now_ms, Identity(member_id, instance), generation)

    # -- what the world does

    def take(self, effects: Effects) -> None:
        self.saves += effects.saves
        for answer in effects.responses:
            assert answer.ticket.reply is None, f"{answer.ticket.name} is answered twice"
            answer.ticket.reply = answer.result
            self._check(answer.result)
        assert self.group.generation >= self._highest_generation
        self._highest_generation = self.group.generation

    def _check(self, reply: JoinResult | SyncResult) -> None:
        if isinstance(reply, SyncResult) and reply.error is None:
            shown = [each.snapshot.generation for each in self.committed]
            assert self.group.generation in shown, "an assignment before its record"
        if isinstance(reply, JoinResult) and reply.error is None:
            assert reply.generation == self.group.generation
            assert reply.leader_id

    def commit(self) -> None:
        """All records on their way are committed."""
        saves, self.saves = self.saves, []
        for save in saves:
            self.committed.append(save)
            self.take(self.group.saved(self.now_ms, save))

    def fail(self, error: GroupError = GroupError.NOT_COORDINATOR) -> None:
        """None of them is."""
        saves, self.saves = self.saves, []
        for save in saves:
            self.take(self.group.save_failed(self.now_ms, save, error))

    def pass_time(self, ms: int, *alive: str) -> None:
        """Time passes, the group is woken when it asks to be, and some send heartbeats."""
        end_ms = self.now_ms + ms
        while True:
            step_ms = min(end_ms, self.now_ms + 1_000)
            if self.group.wake_ms is not None:
                step_ms = min(step_ms, max(self.group.wake_ms, self.now_ms))
            self.now_ms = step_ms
            for member_id in alive:
                self.beat(member_id)
            if self.group.wake_ms is not None and self.group.wake_ms <= self.now_ms:
                self.take(self.group.tick(self.now_ms))
                assert self.group.wake_ms is None or self.group.wake_ms > self.now_ms
            if self.now_ms >= end_ms:
                return

    # -- whole acts

    @property
    def state(self) -> GroupState:
        return self.group.state

    def stable(self, count: int, **join: Any) -> list[str]:
        """A stable group of so many members, the first leads. Member n is assigned `part n`."""
        settings = self.group.settings
        self.group.settings = replace(settings, initial_rebalance_delay_ms=1)
        tickets = [self.join(**join) for _ in range(count)]
        self.pass_time(10)
        self.group.settings = settings
        known = [ticket.reply.member_id for ticket in tickets]
        self.share_out(known)
        return known

    def share_out(self, member_ids: list[str]) -> None:
        """Everybody syncs, the leader with `part n` for member n, and the record commits."""
        leader = self.group.members.leader_id
        assert leader is not None
        parts = {each: f"part {n}".encode() for n, each in enumerate(member_ids)}
        for member_id in member_ids:
            self.sync(member_id, parts if member_id == leader else None)
        assert isinstance(self.saves[-1], GenerationSave)
        self.commit()
        assert self.state is GroupState.STABLE
