"""Requests to a group, its replies, and the effects that a caller carries out after a step.

Plain data. A ticket stands for one waiting request. The group returns it in exactly one `Response`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from neve.coordinator.group_errors import GroupError

NO_GENERATION = -1
NO_MEMBER = ""
Ticket = Any


class GroupState(StrEnum):
    """The states of a group, named as Kafka's clients and tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    id_round_trip: bool = False
    """Whether a client without an id first gets one and has to join again with it."""
    knows_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    error: GroupError | None = None
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    error: GroupError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that a request claims: a member id, an instance id, or both."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A generation as it is stored in the internal topic."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberSnapshot, ...]


@dataclass(eq=False, slots=True)
class Save:
    """A record to commit. The caller reports the outcome to the group with this same object."""

    snapshot: GroupSnapshot


@dataclass(eq=False, slots=True)
class GenerationSave(Save):
    """The leader's assignment. No member gets its part before this is committed."""

    assignments: dict[str, bytes]


@dataclass(eq=False, slots=True)
class EmptySave(Save):
    """The group has no member left. No request waits for this record."""


@dataclass(eq=False, slots=True)
class ReplacementSave(Save):
    """A static member has a new id. Its request gets a response when this is committed."""

    old_id: str
    new_id: str
    old_leader_id: str
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    knows_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class Response:
    ticket: Ticket
    result: JoinResult | SyncResult


@dataclass(slots=True)
class Effects:
    """What a step asks of its caller: send these responses, append these records in this order."""

    responses: list[Response] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
