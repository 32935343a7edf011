"""The members of one group: ids, supported protocols, the leader, and which of them wait.

Counts of waiting members, and of members per supported protocol, are updated with every change, so
that no step has to scan all members. Members keep the order in which they joined, and every choice
among them follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from neve.coordinator.group_messages import JoinRequest, MemberSnapshot, Ticket

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """One member. It has a ticket while its request waits."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """The client does not know its id yet, so it cannot send heartbeats."""
    join_ticket: Ticket = None
    sync_ticket: Ticket = None
    session_deadline_ms: int = 0

    @property
    def counts_as_alive(self) -> bool:
        """Whether its waiting request is a sign of life. A new member may have disconnected."""
        waits = self.join_ticket is not None or self.sync_ticket is not None
        return waits and not self.is_new

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def snapshot(self, protocol_name: str | None, assignment: bytes) -> MemberSnapshot:
        return MemberSnapshot(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )


def member_from(request: JoinRequest, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


def protocol_bytes(protocols: Protocols) -> int:
    return sum(len(name) + len(data) for name, data in protocols)


class GroupMembers:
    """All members of a group."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._statics: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self.leader_id: str | None = None
        self.joining_count = 0
        self.metadata_bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def id_of_instance(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self._statics.get(instance_id)

    @property
    def all_joining(self) -> bool:
        return self.joining_count == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self._members.values()), default=0)

    # -- changes

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._statics[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. The caller must have taken its tickets."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            self._statics.pop(member.instance_id, None)
        self._count(member.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id. It keeps its place in the order."""
        old_id = member.member_id
        member.member_id = member_id
        self._members = {each.member_id: each for each in self._members.values()}
        if member.instance_id is not None:
            self._statics[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def _count(self, protocols: Protocols, change: int) -> None:
        self.metadata_bytes += change * protocol_bytes(protocols)
        for name in dict(protocols):
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # -- waiting

    def wait_join(self, member: Member, ticket: Ticket) -> Ticket:
        """Let a member wait for the next generation. Returns the ticket that this one replaces."""
        replaced = member.join_ticket
        if replaced is None:
            self.joining_count += 1
        member.join_ticket = ticket
        return replaced

    def take_join(self, member: Member) -> Ticket:
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is not None:
            self.joining_count -= 1
        return ticket

    # -- choices

    def supported_by_all(self, names: Iterable[str]) -> bool:
        return any(self._supporters.get(name, 0) == len(self._members) for name in names)

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support.

        Each member votes for the first of its own. Ties go to the first that got a vote.
        """
        votes: dict[str, int] = {}
        for member in self._members.values():
            for name, _ in member.protocols:
                if self._supporters[name] == len(self._members):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def elect_joining_leader(self) -> bool:
        """Keep the leader if it waits to join, else elect the first member that does.

        Returns False if no member does.
        """
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        for member in self._members.values():
            if member.join_ticket is not None:
                self.leader_id = member.member_id
                return True
        return False
