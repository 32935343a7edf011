"""The group APIs over the wire and back, in every version, on a real node in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

from neve import runtime
from neve.broker.admin import changes
from neve.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from neve.broker.offsets_topic import OffsetsTopic
from neve.cluster.state import Topic
from neve.errors import StoreError, UnavailableError
from neve.log.partition import PartitionLog
from neve.protocol.codes import ErrorCode
from neve.protocol.compiler import AnyApi
from neve.protocol.messages import APIS
from neve.settings import GroupSettings
from support.broker_world import ADVERTISED, NODE_ID, StandIn, ask, start_broker, versions

META = b"\0\1\0\0\0\1\0\6orders"
NONE = ErrorCode.NONE
UNKNOWN_ID = b"?" * 16
NOT_ASKED_FOR = -(2**31)


class GroupBroker(StandIn):
    """A stand-in that coordinates groups."""

    offsets_topic: OffsetsTopic
    leads = True

    @property
    def groups(self) -> Any:
        return self.offsets_topic.groups

    async def still_leading(self) -> bool:
        await runtime.sleep(0)
        return self.leads

    async def call(self, handler: ModuleType, version: int, **content: Any) -> Any:
        return await ask(self, handler, api_of(handler), version, **content)

    async def member(self, group_id: str, version: int = 0) -> tuple[str, int]:
        """Join as the only member, with `all` assigned."""
        joined = await self.join(group_id, version)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await self.join(group_id, version, member_id=joined.member_id)
        assert joined.error_code == NONE
        await self.sync(group_id, joined, {joined.member_id: b"all"})
        return joined.member_id, joined.generation_id

    async def join(self, group_id: str, version: int, **changes: Any) -> Any:
        request = APIS[11].Request
        content: dict[str, Any] = {
            "group_id": group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [request.Protocol(name="range", metadata=META)],
            **changes,
        }
        return await self.call(join_group, version, **content)

    async def sync(
        self, group_id: str, joined: Any, parts: dict[str, bytes], version: int = 0
    ) -> Any:
        request = APIS[14].Request
        assignments = [
            request.Assignment(member_id=name, assignment=part) for name, part in parts.items()
        ]
        return await self.call(
            sync_group,
            version,
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )


def api_of(handler: ModuleType) -> AnyApi:
    name = handler.__name__.rpartition(".")[2].title().replace("_", "")
    return next(api for api in APIS.values() if api.name == name)


@asynccontextmanager
async def broker_of(**topics: int) -> AsyncIterator[GroupBroker]:
    made = await start_broker(topics or {"orders": 2})
    broker = GroupBroker(made.node, made.settings, made.bucket)
    broker.offsets_topic = OffsetsTopic(
        made.node, GroupSettings(partitions=2, initial_rebalance_delay_ms=0)
    )
    await broker.offsets_topic.load()
    try:
        yield broker
    finally:
        await broker.offsets_topic.close()
        await made.node.close()


@asynccontextmanager
async def coordinating(**topics: int) -> AsyncIterator[GroupBroker]:
    async with broker_of(**topics) as broker:
        await broker.offsets_topic.ensure()
        yield broker


# --- FindCoordinator


async def test_who_looks_for_a_coordinator_does_not_wait_for_a_store_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "WAIT_MS_LEAST", 20)
    async with broker_of() as broker:
        released = asyncio.Event()
        create = broker.node.topics.create

        async def held(*about: Any) -> Topic:
            await released.wait()
            return await create(*about)

        monkeypatch.setattr(broker.node.topics, "create", held)

        async def found() -> int:
            answer = await broker.call(find_coordinator, 3, key="g")
            return int(answer.error_code)

        async with runtime.deadline(5):
            assert await found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            monkeypatch.setattr(changes, "CHANGES_MAX", 1)
            assert await found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        released.set()
        await broker.changing.join()
        monkeypatch.setattr(changes, "CHANGES_MAX", 0)
        assert await found() == NONE, "groups that are served wait for no change"


async def test_every_version_finds_this_broker_and_makes_the_internal_topic() -> None:
    async with broker_of() as broker:
        for version in versions(APIS[10]):
            answer = await broker.call(
                find_coordinator, version, key="g", coordinator_keys=["g", "h"]
            )
            rows = answer.coordinators if version >= 4 else [answer]
            assert len(rows) == (2 if version >= 4 else 1)
            for row in rows:
                where = (row.error_code, row.node_id, row.host, row.port)
                assert where == (NONE, NODE_ID, ADVERTISED.host, ADVERTISED.port)
            assert [row.key for row in rows] == ["g", "h"] if version >= 4 else True
        topic = broker.node.cluster.state.topic("__consumer_offsets")
        assert topic is not None
        assert len(topic.partitions) == 2


@pytest.mark.parametrize("version", [1, 4])
async def test_transactions_are_refused_for_good(version: int) -> None:
    async with broker_of() as broker:
        answer = await broker.call(
            find_coordinator, version, key="t", key_type=1, coordinator_keys=["t"]
        )
        row = answer.coordinators[0] if version >= 4 else answer
        assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert not ErrorCode(row.error_code).retriable
        assert "transactions are not supported" in row.error_message
        assert broker.node.cluster.state.topic("__consumer_offsets") is None


async def test_other_kinds_of_coordinators_are_refused() -> None:
    async with broker_of() as broker:
        answer = await broker.call(find_coordinator, 6, key_type=2, coordinator_keys=["s"])
        assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_while_the_internal_topic_cannot_be_made_clients_come_again() -> None:
    async with broker_of() as broker:

        async def failing() -> None:
            raise StoreError("meta/log", "slow down")

        broker.offsets_topic.ensure = failing  # type: ignore[method-assign]
        answer = await broker.call(find_coordinator, 3, key="g")
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_internal_topic_that_was_made_and_not_led_is_served_once_it_is() -> None:
    async with broker_of() as broker:
        leading = broker.node.takeover
        lead_created = leading.lead_created

        async def failing(topic: object, created: object) -> None:
            raise UnavailableError("meta/log", "slow down")

        leading.lead_created = failing  # type: ignore[method-assign, assignment]
        answer = await broker.call(find_coordinator, 3, key="g")
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        leading.lead_created = lead_created  # type: ignore[method-assign]
        answer = await broker.call(find_coordinator, 3, key="g")
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert (await broker.join("g", 3)).error_code == ErrorCode.NOT_COORDINATOR
        await leading.lead_unled()
        assert await eventually_joins(broker) == NONE


async def test_groups_that_could_not_be_loaded_are_served_once_they_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(_: object) -> None:
        raise UnavailableError("wal/1", "slow down")

    async with broker_of() as broker:
        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "load_state", failing)
            assert (await broker.call(find_coordinator, 3, key="g")).error_code == NONE
            assert (await broker.join("g", 3)).error_code == ErrorCode.NOT_COORDINATOR
        assert await eventually_joins(broker) == NONE


async def eventually_joins(broker: GroupBroker) -> int:
    """Ask for the coordinator and join, as clients do, until that works."""
    for _ in range(100):
        assert (await broker.call(find_coordinator, 3, key="g")).error_code == NONE
        answer = await broker.join("g", 3)
        if answer.error_code != ErrorCode.NOT_COORDINATOR:
            break
        await runtime.sleep(0.01)
    return int(answer.error_code)


# --- members


@pytest.mark.parametrize("version", versions(APIS[11]))
async def test_joining_syncing_beating_and_leaving(version: int) -> None:
    async with coordinating() as broker:
        joined = await broker.join("g", version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert joined.protocol_name == (None if version >= 7 else "")
            joined = await broker.join("g", version, member_id=joined.member_id)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("test-")
        assert [each.metadata for each in joined.members] == [META]
        me, sync_version = joined.member_id, min(version, APIS[14].max_version)
        synced = await broker.sync("g", joined, {me: bytes(range(256))}, sync_version)
        assert (synced.error_code, synced.assignment) == (NONE, bytes(range(256)))
        beat = await broker.call(
            heartbeat,
            min(version, APIS[12].max_version),
            group_id="g",
            generation_id=1,
            member_id=me,
        )
        assert beat.error_code == NONE


@pytest.mark.parametrize("version", versions(APIS[13]))
async def test_every_version_leaves(version: int) -> None:
    async with coordinating() as broker:
        me, generation = await broker.member("g")
        request = APIS[13].Request
        leaving = [request.Member(member_id=me), request.Member(member_id="stranger")]
        left = await broker.call(leave_group, version, group_id="g", member_id=me, members=leaving)
        assert left.error_code == NONE
        if version >= 3:
            errors = [(each.member_id, each.error_code) for each in left.members]
            assert errors == [(me, NONE), ("stranger", ErrorCode.UNKNOWN_MEMBER_ID)]
        again = await broker.call(
            leave_group, version, group_id="g", member_id=me, members=leaving[:1]
        )
        row = again.members[0] if version >= 3 else again
        assert row.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        beat = await broker.call(heartbeat, 0, group_id="g", generation_id=generation, member_id=me)
        assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_static_members_over_the_wire() -> None:
    async with coordinating() as broker:
        first = await broker.join("g", 9, group_instance_id="i")
        await broker.sync("g", first, {first.member_id: b"all"})
        second = await broker.join("g", 9, group_instance_id="i")
        assert (second.error_code, second.skip_assignment) == (NONE, True)
        assert second.members[0].group_instance_id == "i"
        beat = await broker.call(
            heartbeat,
            4,
            group_id="g",
            generation_id=1,
            member_id=first.member_id,
            group_instance_id="i",
        )
        assert beat.error_code == ErrorCode.FENCED_INSTANCE_ID
        member = APIS[13].Request.Member(member_id="", group_instance_id="i")
        left = await broker.call(leave_group, 5, group_id="g", members=[member])
        assert left.members[0].error_code == NONE


async def test_a_sync_of_version_5_names_its_protocol() -> None:
    async with coordinating() as broker:
        answer = await broker.call(sync_group, 5, group_id="g", generation_id=1, member_id="m")
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_before_anybody_asked_for_the_coordinator_nothing_is_coordinated() -> None:
    async with broker_of() as broker:
        assert (await broker.join("g", 0)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await broker.call(list_groups, 5)).groups == []


# --- looking and deleting


@pytest.mark.parametrize("version", versions(APIS[15]))
async def test_every_version_describes(version: int) -> None:
    async with coordinating() as broker:
        me, _ = await broker.member("g")
        answer = await broker.call(
            describe_groups, version, groups=["g", "nobody"], include_authorized_operations=True
        )
        shown, nobody = answer.groups
        assert (shown.error_code, shown.group_state, shown.protocol_data) == (
            NONE,
            "Stable",
            "range",
        )
        [member] = shown.members
        assert (member.member_id, member.client_id, member.client_host) == (
            me,
            "test",
            "/127.0.0.1",
        )
        assert (member.member_metadata, member.member_assignment) == (META, b"all")
        assert (shown.authorized_operations != NOT_ASKED_FOR) == (version >= 3)
        missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE
        assert (nobody.error_code, nobody.group_state, nobody.members) == (missing, "Dead", [])


@pytest.mark.parametrize("version", versions(APIS[16]))
async def test_every_version_lists(version: int) -> None:
    async with coordinating() as broker:
        await broker.member("g")
        await commit(broker, "simple", 2, {0: 5})
        listed = (await broker.call(list_groups, version)).groups
        assert sorted((each.group_id, each.protocol_type) for each in listed) == [
            ("g", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            stable = await broker.call(list_groups, version, states_filter=["Stable"])
            assert [(each.group_id, each.group_state) for each in stable.groups] == [
                ("g", "Stable")
            ]
        if version >= 5:
            assert {each.group_type for each in listed} == {"classic"}
            others = await broker.call(list_groups, version, types_filter=["share"])
            assert others.groups == []


@pytest.mark.parametrize("version", versions(APIS[42]))
async def test_every_version_deletes(version: int) -> None:
    async with coordinating() as broker:
        await broker.member("busy")
        await commit(broker, "simple", 2, {0: 5})
        answer = await broker.call(
            delete_groups, version, groups_names=["busy", "simple", "nobody", "simple"]
        )
        assert [(each.group_id, each.error_code) for each in answer.results] == [
            ("busy", ErrorCode.NON_EMPTY_GROUP),
            ("simple", NONE),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]


# --- offsets


async def commit(
    broker: GroupBroker, group_id: str, version: int, offsets: dict[int, int], **changes: Any
) -> list[int]:
    request = APIS[8].Request
    partitions = [
        request.Partition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=4,
            committed_metadata=None if number else "note",
        )
        for number, offset in offsets.items()
    ]
    topic = request.Topic(
        name="orders", topic_id=broker.topic("orders").id_bytes, partitions=partitions
    )
    answer = await broker.call(offset_commit, version, group_id=group_id, topics=[topic], **changes)
    return [each.error_code for each in answer.topics[0].partitions]


@pytest.mark.parametrize("version", versions(APIS[8]))
async def test_every_version_commits(version: int) -> None:
    async with coordinating() as broker:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(broker, "g", version, {0: 5, 7: 1}) == [NONE, unknown]
        found = await fetch(broker, "g", 5, [0, 1])
        epoch = 4 if version >= 6 else -1
        assert found == [(0, 5, epoch, "note", NONE), (1, -1, -1, "", NONE)]


async def test_members_commit_over_the_wire() -> None:
    async with coordinating() as broker:
        me, generation = await broker.member("g")
        mine = {"member_id": me, "generation_id_or_member_epoch": generation}
        assert await commit(broker, "g", 8, {0: 5}, **mine) == [NONE]
        late = {**mine, "generation_id_or_member_epoch": generation + 1}
        assert await commit(broker, "g", 8, {0: 6}, **late) == [ErrorCode.ILLEGAL_GENERATION]
        assert await commit(broker, "g", 8, {0: 6}) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def fetch(
    broker: GroupBroker, group_id: str, version: int, numbers: list[int] | None
) -> list[tuple[int, int, int, str, int]]:
    answer = await fetch_all(broker, group_id, version, numbers)
    return [
        (
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


async def fetch_all(
    broker: GroupBroker, group_id: str, version: int, numbers: list[int] | None
) -> Any:
    """The part of the answer that is about the group, whatever its version calls it."""
    request = APIS[9].Request
    if version < 8:
        topics = [request.Topic(name="orders", partition_indexes=numbers)]
        return await broker.call(
            offset_fetch,
            version,
            group_id=group_id,
            topics=None if numbers is None else topics,
            require_stable=True,
        )
    topic_id = broker.topic("orders").id_bytes
    group_topics = [request.GroupTopic(name="orders", topic_id=topic_id, partition_indexes=numbers)]
    group = request.Group(group_id=group_id, topics=None if numbers is None else group_topics)
    other = request.Group(group_id="other", topics=None)
    answer = await broker.call(offset_fetch, version, groups=[group, other], require_stable=True)
    assert [each.group_id for each in answer.groups] == [group_id, "other"]
    assert answer.groups[1].topics == []
    return answer.groups[0]


@pytest.mark.parametrize("version", versions(APIS[9]))
async def test_every_version_fetches(version: int) -> None:
    async with coordinating() as broker:
        await commit(broker, "g", 8, {0: 5})
        epoch = 4 if version >= 5 else -1
        rows = [(0, 5, epoch, "note", NONE), (1, -1, -1, "", NONE)]
        assert await fetch(broker, "g", version, [0, 1]) == rows
        if version >= 2:
            answer = await fetch_all(broker, "g", version, None)
            assert [each.partition_index for each in answer.topics[0].partitions] == [0]
            if version >= 10:
                assert answer.topics[0].topic_id == broker.topic("orders").id_bytes
            else:
                assert answer.topics[0].name == "orders"


@pytest.mark.parametrize("version", versions(APIS[9]))
async def test_every_version_has_a_place_for_the_error(version: int) -> None:
    async with coordinating() as broker:
        await commit(broker, "g", 8, {0: 5})
        broker.leads = False
        lost = ErrorCode.NOT_COORDINATOR
        if version < 8:
            answer = await fetch_all(broker, "g", version, [0])
            if version < 2:
                assert [each.error_code for each in answer.topics[0].partitions] == [lost]
                assert answer.topics[0].partitions[0].committed_offset == -1
            else:
                assert (answer.error_code, answer.topics) == (lost, [])
        else:
            answer = await fetch_all(broker, "g", version, [0])
            assert (answer.error_code, answer.topics) == (lost, [])


async def test_unknown_topic_ids_are_told_one_by_one() -> None:
    async with coordinating() as broker:
        commits = APIS[8].Request
        strange = commits.Topic(
            topic_id=UNKNOWN_ID,
            partitions=[commits.Partition(partition_index=0, committed_offset=1)],
        )
        known = commits.Topic(
            topic_id=broker.topic("orders").id_bytes,
            partitions=[commits.Partition(partition_index=0, committed_offset=1)],
        )
        answer = await broker.call(offset_commit, 10, group_id="g", topics=[strange, known])
        codes = [each.partitions[0].error_code for each in answer.topics]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, NONE]
        fetches = APIS[9].Request
        rows = [
            fetches.GroupTopic(topic_id=each, partition_indexes=[0])
            for each in (UNKNOWN_ID, broker.topic("orders").id_bytes)
        ]
        group = fetches.Group(group_id="g", topics=rows)
        found = (await broker.call(offset_fetch, 10, groups=[group])).groups[0]
        assert [each.partitions[0].error_code for each in found.topics] == codes
        assert [each.partitions[0].committed_offset for each in found.topics] == [-1, 1]
        assert [each.topic_id for each in found.topics] == [row.topic_id for row in rows]


async def test_one_look_speaks_for_all_groups_of_a_request() -> None:
    async with coordinating() as broker:
        looks = 0

        async def counted() -> bool:
            nonlocal looks
            looks += 1
            return True

        broker.still_leading = counted  # type: ignore[method-assign]
        request = APIS[9].Request
        groups = [request.Group(group_id=f"g{n}", topics=None) for n in range(20)]
        answer = await broker.call(offset_fetch, 9, groups=groups)
        assert (len(answer.groups), looks) == (20, 1)


async def test_offsets_are_deleted_over_the_wire() -> None:
    async with coordinating() as broker:
        await commit(broker, "g", 8, {0: 5, 1: 6})
        request = APIS[47].Request
        topics = [
            request.Topic(name=name, partitions=[request.Partition(partition_index=0)])
            for name in ("orders", "nowhere")
        ]
        answer = await broker.call(offset_delete, 0, group_id="g", topics=topics)
        codes = [each.partitions[0].error_code for each in answer.topics]
        assert (answer.error_code, codes) == (NONE, [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert [row[1] for row in await fetch(broker, "g", 5, [0, 1])] == [-1, 6]
        nobody = await broker.call(offset_delete, 0, group_id="nobody", topics=topics)
        assert (nobody.error_code, nobody.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_offsets_of_partitions_that_a_topic_lacks_are_not_deleted() -> None:
    async with coordinating() as broker:
        await commit(broker, "g", 8, {0: 5})
        request = APIS[47].Request
        partitions = [request.Partition(partition_index=index) for index in (-1, 0, 2)]
        topics = [request.Topic(name="orders", partitions=partitions)]
        answer = await broker.call(offset_delete, 0, group_id="g", topics=topics)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [unknown, NONE, unknown]


async def test_groups_and_offsets_survive_a_restart_on_the_same_bucket() -> None:
    async with coordinating() as broker:
        me, generation = await broker.member("g")
        await commit(broker, "g", 8, {1: 6}, member_id=me, generation_id_or_member_epoch=generation)
        await broker.offsets_topic.close()
        broker.offsets_topic = OffsetsTopic(
            broker.node, GroupSettings(partitions=2, initial_rebalance_delay_ms=0)
        )
        await broker.offsets_topic.load()
        assert [row[1] for row in await fetch(broker, "g", 8, [1])] == [6]
        beat = await broker.call(heartbeat, 4, group_id="g", generation_id=generation, member_id=me)
        assert beat.error_code == NONE


async def test_a_topic_created_again_starts_without_the_old_offsets() -> None:
    async with coordinating() as broker:
        await commit(broker, "g", 8, {0: 5})
        await broker.node.topics.delete("orders")
        await broker.node.topics.create("orders", 2)
        assert [row[1] for row in await fetch(broker, "g", 8, [0])] == [-1]
        assert await commit(broker, "g", 8, {0: 1}) == [NONE]
        assert [row[1] for row in await fetch(broker, "g", 8, [0])] == [1]
