"""Members of consumer groups in a simulated cluster: they join, read, and commit offsets.

A member that does not know whether a commit took effect leaves its generation before it commits
again: an old request that arrives late must not move the offset back, and the coordinator refuses
it by its generation.
"""

from __future__ import annotations

import contextlib

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.serving.addresses import Address
from simulation.network_clients import JOIN_SECONDS_MAX, TOPIC, Client, RetryError, pause, read

SESSION_MS = 6_000
ROUNDS_MAX = 30
PROTOCOL = "simulated"
_MOVED = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
_REJOIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))


class Groups:
    """Requests to the coordinator of a group."""

    def __init__(self, client: Client, group: str) -> None:
        self.client = client
        self.group = group
        self._coordinator: Address | None = None

    async def coordinator(self) -> Address:
        if self._coordinator is None:
            body = FIND_COORDINATOR.Request(key_type=0, coordinator_keys=[self.group])
            answer = await self.client.ask(self.client.any_broker(), FIND_COORDINATOR, 4, body)
            row = answer.coordinators[0]
            if row.error_code != ErrorCode.NONE:
                self.refuse("find coordinator", row.error_code)
            self._coordinator = Address(row.host, row.port)
        return self._coordinator

    async def ask(self, api: object, version: int, body: object, seconds: float = 0.0) -> object:
        try:
            return await self.client.ask(await self.coordinator(), api, version, body, seconds)
        except RetryError:
            self._coordinator = None
            raise

    def refuse(self, about: str, code: int) -> None:
        """Raise RetryError, and note a code that no client should get."""
        if code in _MOVED:
            self._coordinator = None
        elif code not in _REJOIN and code != ErrorCode.UNKNOWN_MEMBER_ID:
            self.client.promises.unexpected(f"{about} of group {self.group}", code)
        raise RetryError(f"{about}: {ErrorCode(code).name}")

    async def committed(self, partitions: list[int]) -> dict[int, int]:
        """The committed offsets, -1 where there is none."""
        promises = self.client.promises
        known = {each: promises.known_commit(self.group, each) for each in partitions}
        request = OFFSET_FETCH.Request
        topics = [request.GroupTopic(name=TOPIC, partition_indexes=partitions)]
        groups = [request.Group(group_id=self.group, topics=topics)]
        answer = await self.ask(OFFSET_FETCH, 8, request(groups=groups, require_stable=True))
        row = answer.groups[0]  # type: ignore[attr-defined]
        if row.error_code != ErrorCode.NONE:
            self.refuse("offset fetch", row.error_code)
        found = {}
        for part in row.topics[0].partitions:
            if part.error_code != ErrorCode.NONE:
                self.refuse("offset fetch", part.error_code)
            at = part.partition_index
            promises.answered_commit(self.group, at, known[at], part.committed_offset)
            found[at] = part.committed_offset
        self.client.cluster.report.note("committed offsets answered")
        return found


class Member:
    """One member of a group."""

    def __init__(self, client: Client, group: str, partitions: int) -> None:
        self._groups = Groups(client, group)
        self._client = client
        self._partitions = partitions
        self._member_id = ""
        self._generation = -1

    async def run(self) -> None:
        while not self._client.cluster.is_over:
            try:
                await self._live_one_generation()
            except RetryError:
                await pause(0.1, 0.6)

    async def _live_one_generation(self) -> None:
        assigned = await self._join()
        positions = {at: max(0, it) for at, it in (await self._committed(assigned)).items()}
        for _ in range(ROUNDS_MAX):
            if self._client.cluster.is_over:
                return
            await self._heartbeat()
            if positions:
                partition = runtime.chance().choice(list(positions))
                before = positions[partition]
                with contextlib.suppress(RetryError):
                    positions[partition] = await read(self._client, partition, before)
                if positions[partition] > before:
                    await self._commit(partition, positions[partition])
            await pause(0.1, 0.5)
        self._member_id = ""  # leaves without a word: another member takes its partitions over

    async def _committed(self, assigned: list[int]) -> dict[int, int]:
        return await self._groups.committed(assigned) if assigned else {}

    async def _join(self) -> list[int]:
        request = JOIN_GROUP.Request
        body = request(
            group_id=self._groups.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL,
            protocols=[request.Protocol(name="even", metadata=b"")],
        )
        answer = await self._groups.ask(JOIN_GROUP, 7, body, JOIN_SECONDS_MAX)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:  # type: ignore[attr-defined]
            self._member_id = answer.member_id  # type: ignore[attr-defined]
            return await self._join()
        self._check("join", answer.error_code)  # type: ignore[attr-defined]
        self._member_id = answer.member_id  # type: ignore[attr-defined]
        self._generation = answer.generation_id  # type: ignore[attr-defined]
        members = sorted(row.member_id for row in answer.members)  # type: ignore[attr-defined]
        return await self._sync(members)

    async def _sync(self, members: list[str]) -> list[int]:
        """Learn the assignment. The leader of the group knows all members, and assigns."""
        request = SYNC_GROUP.Request
        assignments = [
            request.Assignment(
                member_id=member, assignment=bytes(range(at, self._partitions, len(members)))
            )
            for at, member in enumerate(members)
        ]
        body = request(
            group_id=self._groups.group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL,
            protocol_name="even",
            assignments=assignments,
        )
        answer = await self._groups.ask(SYNC_GROUP, 5, body, JOIN_SECONDS_MAX)
        self._check("sync", answer.error_code)  # type: ignore[attr-defined]
        self._client.cluster.report.note("generation joined")
        return list(answer.assignment)  # type: ignore[attr-defined]

    async def _heartbeat(self) -> None:
        body = HEARTBEAT.Request(
            group_id=self._groups.group,
            generation_id=self._generation,
            member_id=self._member_id,
        )
        answer = await self._groups.ask(HEARTBEAT, 4, body)
        self._check("heartbeat", answer.error_code)  # type: ignore[attr-defined]

    async def _commit(self, partition: int, offset: int) -> None:
        request = OFFSET_COMMIT.Request
        part = request.Partition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        body = request(
            group_id=self._groups.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[request.Topic(name=TOPIC, partitions=[part])],
        )
        try:
            answer = await self._groups.ask(OFFSET_COMMIT, 8, body)
            code = answer.topics[0].partitions[0].error_code  # type: ignore[attr-defined]
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RetryError("a coordinator that has not read of the topic yet")
            self._check("commit", code)
        except RetryError:
            self._member_id = ""
            raise
        self._client.promises.committed(self._groups.group, partition, offset)
        self._client.cluster.report.note("offset committed")

    def _check(self, about: str, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code != ErrorCode.NONE:
            self._groups.refuse(about, code)
