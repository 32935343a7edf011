"""Random lives of a group: members join, sync, beat, leave, restart, are late or silent; records
commit or fail; time passes. Whatever happens, what the state machine promises holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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
from support.group_scene import subscription

SELDOM = st.sampled_from([False] * 7 + [True])
SESSION_MS = 6_000
REBALANCE_MS = 20_000
PROTOCOLS = (
    (("range", subscription("a")),),
    (("range", subscription("a", "b")), ("sticky", b"s")),
    (("sticky", b"s"), ("range", subscription("a"))),
)


@dataclass
class Client:
    """A client as it sees itself."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    told: list[str] = field(default_factory=list)


@dataclass
class Ticket:
    client: Client
    asked_ms: int
    member_id: str
    answered: int = 0


class GroupMachine(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 500, 3_000]))
    def start(self, delay_ms: int) -> None:
        limits = GroupSettings(initial_rebalance_delay_ms=delay_ms, size_max=4)
        self.group = Group("g", limits)
        self.now_ms = 0
        self.ids = 0
        self.clients = [Client(None) for _ in range(3)] + [Client("x"), Client("y"), Client("x")]
        self.open: list[Ticket] = []
        self.saves: list[Save] = []
        self.assigned: dict[int, dict[str, bytes]] = {}  # by generation, as the leader gave it
        self.committed: set[int] = set()
        self.leaders: dict[int, str] = {}
        self.generation = 0

    # -- the world's side

    def take(self, effects: Effects) -> None:
        for save in effects.saves:
            self.saves.append(save)
            if isinstance(save, GenerationSave):
                self.assigned.setdefault(save.snapshot.generation, save.assignments)
        for answer in effects.responses:
            ticket: Ticket = answer.ticket
            ticket.answered += 1
            assert ticket.answered == 1, "a ticket is answered twice"
            self.open.remove(ticket)
            if isinstance(answer.result, JoinResult):
                self.joined(ticket.client, answer.result)
            else:
                self.synced(ticket, answer.result)
        replies = [answer.result for answer in effects.responses]
        told = [each for each in replies if isinstance(each, JoinResult) and not each.error]
        if self.group.generation > self.generation and told:
            assert {each.leader_id for each in told} <= {each.member_id for each in told}
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    def joined(self, client: Client, reply: JoinResult) -> None:
        if reply.error is None:
            client.member_id, client.generation = reply.member_id, reply.generation
            client.leads = reply.leader_id == reply.member_id
            assert reply.generation == self.group.generation
            if client.leads and not reply.skip_assignment:
                known = self.leaders.setdefault(reply.generation, reply.member_id)
                assert known == reply.member_id, "a generation has two leaders"
                assert reply.member_id in [each.member_id for each in reply.members]
            client.told = [each.member_id for each in reply.members]
        elif reply.error is GroupError.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        else:
            client.generation = -1
            if reply.error is not GroupError.REBALANCE_IN_PROGRESS:
                client.member_id = ""

    def synced(self, ticket: Ticket, reply: SyncResult) -> None:
        if reply.error is not None:
            return
        generation = self.group.generation
        assert generation in self.committed, "a generation is shown before its record"
        # A static member that came back under another id keeps what its former id was given.
        given = list(self.assigned[generation].values())
        expected = self.assigned[generation].get(ticket.member_id)
        assert reply.assignment == expected if expected is not None else reply.assignment in given

    # -- rules

    @rule(
        who=st.integers(0, 5),
        protocols=st.sampled_from(PROTOCOLS),
        forgets=SELDOM,
        round_trip=st.booleans(),
        skips=st.booleans(),
    )
    def join(self, who: int, protocols: Any, forgets: bool, round_trip: bool, skips: bool) -> None:
        client = self.clients[who]
        if forgets:
            client.member_id = ""
        self.ids += 1
        ticket = Ticket(client, self.now_ms, client.member_id)
        self.open.append(ticket)
        request = JoinRequest(
            group_id="g",
            member_id=client.member_id,
            protocol_type="consumer",
            protocols=protocols,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_id=client.instance,
            id_round_trip=round_trip,
            knows_skip_assignment=skips,
        )
        self.take(self.group.join(self.now_ms, ticket, request, f"m{self.ids}"))

    @rule(who=st.integers(0, 5), stale=SELDOM)
    def sync(self, who: int, stale: bool) -> None:
        client = self.clients[who]
        ticket = Ticket(client, self.now_ms, client.member_id)
        self.open.append(ticket)
        generation = client.generation - stale
        parts = {each: f"{each} in {generation}, {self.ids}".encode() for each in client.told}
        request = SyncRequest(
            group_id="g",
            generation=generation,
            member_id=client.member_id,
            instance_id=client.instance,
            assignments=parts if client.leads else {},
        )
        self.take(self.group.sync(self.now_ms, ticket, request))

    @rule(others=st.permutations(range(5)), syncing=st.integers(0, 5))
    def behave(self, others: list[int], syncing: int) -> None:
        """Whoever does not wait does what a good client does next; some are slower than others."""
        for who in others:
            client = self.clients[who]
            if any(ticket.client is client for ticket in self.open):
                continue
            is_current = client.generation == self.group.generation
            if not is_current or self.group.state in (GroupState.PREPARING, GroupState.EMPTY):
                self.join(who, PROTOCOLS[0], False, False, True)
            elif self.group.state is GroupState.COMPLETING and who <= syncing:
                self.sync(who, False)

    @rule(who=st.integers(0, 5))
    def beat(self, who: int) -> None:
        client = self.clients[who]
        identity = Identity(client.member_id, client.instance)
        error = self.group.heartbeat(self.now_ms, identity, client.generation)
        if error is None:
            assert client.generation == self.group.generation

    @rule(who=st.integers(0, 5), by_instance=st.booleans())
    def leave(self, who: int, by_instance: bool) -> None:
        client = self.clients[who]
        member_id = "" if by_instance else client.member_id
        _, effects = self.group.leave(self.now_ms, [Identity(member_id, client.instance)])
        self.take(effects)

    @rule(fails=SELDOM)
    def decide(self, fails: bool) -> None:
        if self.saves:
            save = self.saves.pop(0)
            if fails:
                error = GroupError.UNAVAILABLE
                self.take(self.group.save_failed(self.now_ms, save, error))
            else:
                if isinstance(save, GenerationSave):
                    self.committed.add(save.snapshot.generation)
                self.take(self.group.saved(self.now_ms, save))

    @rule(ms=st.sampled_from([1, 400, 2_000, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        steps = 0
        while self.group.wake_ms is not None and self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self.take(self.group.tick(self.now_ms))
            assert self.group.wake_ms is None or self.group.wake_ms > self.now_ms
            steps += 1
            assert steps < 200, "it wakes itself for ever"
        self.now_ms = end_ms

    # -- what always holds

    @invariant()
    def members_and_leader_fit(self) -> None:
        if not hasattr(self, "group"):
            return
        group, members = self.group, self.group.members
        ids = [each.member_id for each in members]
        assert len(set(ids)) == len(ids)
        assert (members.leader_id in ids) if ids else members.leader_id is None
        if group.state is GroupState.EMPTY:
            assert ids == []
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            assert ids
        assert members.joining_count == sum(each.join_ticket is not None for each in members)
        waiting = [each.join_ticket for each in members] + [each.sync_ticket for each in members]
        held = [each for each in waiting if each is not None]
        assert sorted(map(id, held)) == sorted(map(id, self.open)), "a ticket is lost"

    @invariant()
    def sync_waits_only_for_a_generation(self) -> None:
        if hasattr(self, "group") and self.group.state is not GroupState.COMPLETING:
            assert all(each.sync_ticket is None for each in self.group.members)

    def teardown(self) -> None:
        """With all records decided and everybody silent, nothing waits for ever."""
        if not hasattr(self, "group"):
            return
        while self.saves:
            self.decide(fails=False)
        for _ in range(40):
            self.wait(REBALANCE_MS)
            while self.saves:
                self.decide(fails=False)
        assert self.open == []
        assert self.group.state is GroupState.EMPTY
        assert self.group.wake_ms is None


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
