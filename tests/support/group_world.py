"""A coordinator whose state log the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from neve import runtime
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import JoinRequest, JoinResult, SyncRequest, SyncResult
from neve.coordinator.groups import Groups
from neve.coordinator.offset_requests import CommitRequest, OffsetToCommit, TopicFacts
from neve.errors import NeveError
from neve.settings import GroupSettings

Record = tuple[bytes, bytes | None]
TOPIC = "orders"
TOPIC_ID = b"o" * 16
PROTOCOLS = (("range", b"\0\1\0\0\0\1\0\6orders"),)


class FakeLog:
    """Commits after `delay_s`, or when told to while it is `held`; fails while `failure` is set."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.delay_s = delay_s
        self.appends: list[list[Record]] = []
        self.table: dict[bytes, bytes] = {}
        self.failure: NeveError | None = None
        self.held = False
        self._waiting: list[asyncio.Future[None]] = []

    async def append(self, records: Sequence[Record]) -> None:
        self.appends.append(list(records))
        if self.failure is not None:
            raise self.failure
        if self.held:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        else:
            await runtime.sleep(self.delay_s)
        for key, value in records:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    async def release(self, failure: NeveError | None = None) -> None:
        """Everything held is decided."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
        await runtime.sleep(0.001)


class FakeTopics:
    """Topics as the process knows them, and as they are once it looks."""

    def __init__(self) -> None:
        self.known = {TOPIC: TopicFacts(TOPIC_ID, 4)}
        self.actual: dict[str, TopicFacts] | None = None
        self.refreshes = 0
        self.failure: NeveError | None = None

    def lookup(self, name: str) -> TopicFacts | None:
        return self.known.get(name)

    async def refresh(self) -> None:
        self.refreshes += 1
        await runtime.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        if self.actual is not None:
            self.known = self.actual


async def leading() -> bool:
    await runtime.sleep(0)
    return True


class World:
    """One coordinator that has everything loaded."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(
            **{"partitions": 1, "initial_rebalance_delay_ms": 100, **settings}
        )
        self.log = FakeLog()
        self.topics = FakeTopics()
        self.failures: list[BaseException] = []
        self.complaints: list[tuple[str, ...]] = []
        self.groups = Groups(
            self.settings,
            self.topics,
            self.failures.append,
            lambda *said: self.complaints.append(said),
        )

    async def __aenter__(self) -> World:
        self.groups.start()
        for partition in range(self.settings.partitions):
            await self.groups.load(partition, {}, self.log)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.groups.close()
        assert self.failures == []

    async def restart(self) -> None:
        """Another process takes over, with what is committed."""
        await self.groups.close()
        self.groups = Groups(self.settings, self.topics, self.failures.append)
        self.groups.start()
        for partition in range(self.settings.partitions):
            await self.groups.load(partition, dict(self.log.table), self.log)

    def join(self, member_id: str = "", *, group_id: str = "g", **changes: object) -> JoinRequest:
        fields: dict[str, object] = {
            "group_id": group_id,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": PROTOCOLS,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "client_id": "app",
        }
        return JoinRequest(**{**fields, **changes})  # type: ignore[arg-type]

    async def joined(self, member_id: str = "", **changes: object) -> JoinResult:
        return await self.groups.join(self.join(member_id, **changes))  # type: ignore[arg-type]

    async def synced(
        self, member_id: str, generation: int, *, group_id: str = "g", **assignments: bytes
    ) -> SyncResult:
        named = {key.replace("_", "-"): value for key, value in assignments.items()}
        named = {member_id: named["own"]} if "own" in named else named
        return await self.groups.sync(
            SyncRequest(
                group_id=group_id, generation=generation, member_id=member_id, assignments=named
            )
        )

    async def member(self, *, group_id: str = "g") -> tuple[str, int]:
        """The one member of a stable group, and its generation."""
        reply = await self.joined(group_id=group_id)
        assert reply.error is None
        answer = await self.synced(reply.member_id, reply.generation, group_id=group_id, own=b"all")
        assert answer.assignment == b"all"
        return reply.member_id, reply.generation

    async def commit(
        self, *offsets: tuple[str, int, int], group_id: str = "g", **changes: object
    ) -> list[GroupError | None]:
        rows = [OffsetToCommit(*each, leader_epoch=3, metadata="m") for each in offsets]
        request = CommitRequest(group_id=group_id, offsets=rows, **changes)  # type: ignore[arg-type]
        answers = await self.groups.commit_offsets(request)
        return [answers[topic, partition] for topic, partition, _ in offsets]

    async def fetch(self, *keys: tuple[str, int], group_id: str = "g") -> list[int]:
        answer = await self.groups.fetch_offsets(group_id, keys, leading)
        assert answer.error is None
        return [answer.offsets[key].offset for key in keys]
