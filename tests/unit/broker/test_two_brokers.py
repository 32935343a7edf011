"""What two live brokers say of each other: the same view of the cluster, and each its own part."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from neve.broker.handlers import (
    delete_groups,
    delete_records,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from neve.broker.offsets_topic import OFFSETS_TOPIC
from neve.cluster.node import Node
from neve.cluster.records import Expire
from neve.protocol.codes import ErrorCode
from neve.protocol.compiler import AnyApi
from neve.protocol.messages import APIS
from neve.store.memory import MemoryStore
from support.broker_world import produce
from support.node_world import create_unled, release
from support.two_brokers import (
    RACKS,
    SETTINGS,
    GroupBroker,
    call,
    groups_by_partition,
    refresh,
    two_brokers,
    until_loaded,
)

NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
BROKERS = [(node_id, f"host{node_id}", 9092, rack) for node_id, rack in RACKS.items()]


def request_of(handler: ModuleType) -> Any:
    name = handler.__name__.rpartition(".")[2].title().replace("_", "")
    return next(api for api in APIS.values() if api.name == name).Request


def api_of(handler: ModuleType) -> AnyApi:
    request = request_of(handler)
    return next(api for api in APIS.values() if api.Request is request)


def all_codes(answer: Any) -> list[int]:
    """Every error code of a response, from outside to inside."""
    found: list[int] = []
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        for each in value if isinstance(value, list) else []:
            found += all_codes(each) if hasattr(each, "__struct_fields__") else []
    return found


# --- the cluster


async def test_both_brokers_name_the_same_brokers_and_controller() -> None:
    async with two_brokers() as (one, two):
        for broker in (one, two):
            answer = await call(broker, metadata, topics=[])
            shown = [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
            assert shown == BROKERS
            assert answer.controller_id == 1
            answer = await call(broker, describe_cluster)
            shown = [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
            assert shown == BROKERS
            assert answer.controller_id == 1


async def test_the_controller_is_a_live_broker_with_an_address() -> None:
    async with two_brokers() as (one, two):
        job = await Node.start(MemoryStore(one.bucket), SETTINGS, node_id=0)
        await refresh(one, two)
        for broker in (one, two):
            assert (await call(broker, metadata, topics=[])).controller_id == 1
        await two.node.cluster.propose(lambda _: Expire(incarnation=one.node.incarnation))
        assert (await call(two, metadata, topics=[])).controller_id == 2
        await two.node.cluster.propose(lambda _: Expire(incarnation=two.node.incarnation))
        assert (await call(two, metadata, topics=[])).controller_id == -1
        await job.abort()


async def test_what_is_known_of_the_brokers_follows_the_cluster_log() -> None:
    async with two_brokers() as (one, two):
        cluster, topic = one.cluster, one.topic("t")
        assert [each.node_id for each in cluster.live_brokers()] == [1, 2]
        assert cluster.current_leader(topic, 1) is not None
        await one.node.cluster.propose(lambda _: Expire(incarnation=two.node.incarnation))
        assert [each.node_id for each in cluster.live_brokers()] == [1]
        assert cluster.current_leader(one.topic("t"), 1) is None
        for number in (-1, 2):
            assert cluster.current_leader(topic, number) is None, "there is no such partition"


async def test_both_brokers_name_the_same_leaders_and_replicas() -> None:
    async with two_brokers() as (one, two):
        await create_unled(one.node, "none", 1)
        await refresh(two)
        await release(one.node, two.node, "t", 0)
        for handler, version in ((metadata, 13), (describe_topic_partitions, 0)):
            request = request_of(handler)
            topics = [request.Topic(name=name) for name in ("none", "t")]
            for broker in (one, two):
                answer = await call(broker, handler, version, topics=topics)
                shown = [
                    (row.error_code, row.leader_id, row.leader_epoch, row.replica_nodes)
                    for topic in answer.topics
                    for row in topic.partitions
                ]
                missing = (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, [1])
                assert shown == [missing, (0, 2, 1, [2, 1]), (0, 2, 0, [2, 1])]


async def test_a_leader_that_clients_cannot_reach_is_not_named() -> None:
    async with two_brokers() as (one, two):
        job = await Node.start(MemoryStore(one.bucket), SETTINGS, node_id=9)
        await job.topics.create("job", 1)
        await refresh(one, two)
        for broker in (one, two):
            answer = await call(broker, metadata, topics=[APIS[3].Request.Topic(name="job")])
            (row,) = answer.topics[0].partitions
            assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([9], [], [9])
        await job.abort()


async def test_brokers_that_ended_are_fenced_until_their_node_starts_again() -> None:
    async with two_brokers() as (one, two):
        await produce(two, "t", 1, partition=1)  # its stream is needed, so it is remembered
        await one.node.cluster.propose(lambda _: Expire(incarnation=two.node.incarnation))

        async def shown(version: int, *, fenced: bool) -> list[tuple[Any, ...]]:
            answer = await call(
                one, describe_cluster, version, include_fenced_brokers=fenced, endpoint_type=1
            )
            return [
                (each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                for each in answer.brokers
            ]

        (first, second) = ((*each, at == 1) for at, each in enumerate(BROKERS))
        assert await shown(2, fenced=True) == [first, second]
        assert await shown(2, fenced=False) == await shown(1, fenced=True) == [first]
        again = await Node.start(
            MemoryStore(one.bucket), SETTINGS, node_id=2, host="moved", port=9193
        )
        await refresh(one)
        assert await shown(2, fenced=True) == [first, (2, "moved", 9193, None, False)]
        await one.node.cluster.propose(lambda _: Expire(incarnation=again.incarnation))
        (_, (node_id, host, *_)) = await shown(2, fenced=True)
        assert (node_id, host) == (2, "host2"), "the later process wrote nothing: it is forgotten"
        await again.abort()


async def test_fenced_brokers_are_listed_among_the_live_ones_by_their_ids() -> None:
    async with two_brokers() as (one, two):
        await produce(one, "t", 1)
        await two.node.cluster.propose(lambda _: Expire(incarnation=one.node.incarnation))
        answer = await call(two, describe_cluster, include_fenced_brokers=True)
        shown = [(each.broker_id, each.host, each.is_fenced) for each in answer.brokers]
        assert shown == [(1, "host1", True), (2, "host2", False)]
        assert answer.controller_id == 2


async def test_a_fenced_broker_is_named_once_and_as_it_was_last() -> None:
    async with two_brokers() as (one, two):
        await produce(two, "t", 1, partition=1)
        again = await Node.start(
            MemoryStore(one.bucket), SETTINGS, node_id=2, host="moved", port=9193
        )
        await again.topics.create("more", 1)
        job = await Node.start(MemoryStore(one.bucket), SETTINGS, node_id=9)
        await job.topics.create("job", 1)
        await refresh(one)
        for ended in (again, job):
            await one.node.cluster.propose(
                lambda _, ended=ended: Expire(incarnation=ended.incarnation)  # type: ignore[misc]
            )
        answer = await call(one, describe_cluster, include_fenced_brokers=True)
        shown = [(each.broker_id, each.host, each.is_fenced) for each in answer.brokers]
        assert shown == [(1, "host1", False), (2, "moved", True)]
        await again.abort()
        await job.abort()


# --- partitions


PARTITION_APIS: list[tuple[ModuleType, str, dict[str, Any], dict[str, Any]]] = [
    (list_offsets, "name", {"partition_index": 1, "timestamp": -1}, {"replica_id": -1}),
    (list_offsets, "name", {"partition_index": 1, "timestamp": -2}, {"replica_id": -1}),
    (delete_records, "name", {"partition_index": 1, "offset": 0}, {"timeout_ms": 1_000}),
    (offset_for_leader_epoch, "topic", {"partition": 1, "leader_epoch": 0}, {}),
]


@pytest.mark.parametrize(("handler", "key", "partition", "more"), PARTITION_APIS)
async def test_a_partition_of_the_other_broker_is_refused_in_every_version(
    handler: ModuleType, key: str, partition: dict[str, Any], more: dict[str, Any]
) -> None:
    async with two_brokers() as (one, two):
        request = request_of(handler)
        topics = [
            request.Topic(**{key: "t"}, partitions=[request.Partition(**partition)]),
        ]
        api = api_of(handler)
        for version in range(api.min_version, api.max_version + 1):
            answer = await call(one, handler, version, topics=topics, **more)
            assert all_codes(answer) == [NOT_LEADER]
        assert all_codes(await call(two, handler, topics=topics, **more)) == [ErrorCode.NONE]


async def test_producers_and_sizes_are_those_of_the_own_partitions() -> None:
    async with two_brokers() as (one, two):
        for broker, own in ((one, 0), (two, 1)):
            topics = [APIS[61].Request.Topic(name="t", partition_indexes=[0, 1])]
            answer = await call(broker, describe_producers, topics=topics)
            codes = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
            assert codes == {own: ErrorCode.NONE, 1 - own: NOT_LEADER}
            answer = await call(broker, describe_log_dirs, topics=None)
            rows = {row.name: row.partitions for row in answer.results[0].topics}
            assert [row.partition_index for row in rows["t"]] == [own]
            assert (OFFSETS_TOPIC in rows) is (broker is one)


# --- groups


def group_requests(group_id: str, topic_id: bytes) -> list[tuple[ModuleType, dict[str, Any]]]:
    """A request of every API about one group, with its versions' fields together."""
    leave, sync, join = (APIS[key].Request for key in (13, 14, 11))
    commit, fetch, delete = (APIS[key].Request for key in (8, 9, 47))
    member = {"group_id": group_id, "generation_id": 1, "member_id": "m"}
    to_commit = [commit.Partition(partition_index=0, committed_offset=1, committed_metadata="")]
    unknown = commit.Topic(name="no", topic_id=b"?" * 16, partitions=to_commit)
    known = commit.Topic(name="t", topic_id=topic_id, partitions=to_commit)
    by_id = fetch.GroupTopic(name="t", topic_id=topic_id, partition_indexes=[0])
    protocols = [join.Protocol(name="range", metadata=b"")]
    return [
        (heartbeat, member),
        (leave_group, {**member, "members": [leave.Member(member_id="m")]}),
        (
            sync_group,
            {
                **member,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [sync.Assignment(member_id="m", assignment=b"")],
            },
        ),
        (
            join_group,
            {
                "group_id": group_id,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "protocol_type": "consumer",
                "protocols": protocols,
            },
        ),
        (describe_groups, {"groups": [group_id]}),
        (delete_groups, {"groups_names": [group_id]}),
        (offset_commit, {"group_id": group_id, "topics": [known, unknown]}),
        (
            offset_fetch,
            {
                "group_id": group_id,
                "topics": [fetch.Topic(name="t", partition_indexes=[0])],
                "groups": [fetch.Group(group_id=group_id, topics=[by_id])],
            },
        ),
        (
            offset_delete,
            {
                "group_id": group_id,
                "topics": [
                    delete.Topic(name="t", partitions=[delete.Partition(partition_index=0)])
                ],
            },
        ),
    ]


async def answer_of(
    broker: GroupBroker, handler: ModuleType, version: int, content: dict[str, Any]
) -> Any:
    fields = request_of(handler).__struct_fields__
    given = {name: value for name, value in content.items() if name in fields}
    return await call(broker, handler, version, **given)


async def test_a_group_of_the_other_broker_is_refused_by_every_api_in_every_version() -> None:
    async with two_brokers() as (one, two):
        name = groups_by_partition(one)[1]
        topic = one.topic("t")
        for at, (handler, content) in enumerate(group_requests(name, topic.id_bytes)):
            api = api_of(handler)
            for version in range(api.min_version, api.max_version + 1):
                answer = await answer_of(two, handler, version, content)
                refused = [code for code in all_codes(answer) if code]
                assert refused, (at, version)
                assert {*refused} == {NOT_COORDINATOR}, (at, version)
        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        await until_loaded(two)
        for handler, content in group_requests(name, topic.id_bytes):
            version = api_of(handler).max_version
            answer = await answer_of(one, handler, version, content)
            assert {code for code in all_codes(answer) if code} == {NOT_COORDINATOR}
            answer = await answer_of(two, handler, version, content)
            assert NOT_COORDINATOR not in all_codes(answer)


async def test_each_broker_lists_the_groups_that_it_coordinates() -> None:
    async with two_brokers() as (one, two):
        names = groups_by_partition(one)
        topic = one.topic("t")
        for name in names.values():
            content = group_requests(name, topic.id_bytes)[6][1]
            assert all_codes(await answer_of(one, offset_commit, 9, content))[0] == 0
        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        await until_loaded(two)
        for broker, own in ((one, 0), (two, 1)):
            answer = await call(broker, list_groups)
            assert [row.group_id for row in answer.groups] == [names[own]]


async def test_a_coordinator_that_clients_cannot_reach_is_not_named() -> None:
    async with two_brokers() as (one, two):
        name = groups_by_partition(one)[0]
        await two.node.cluster.propose(lambda _: Expire(incarnation=one.node.incarnation))
        for version in (0, 6):
            answer = await call(two, find_coordinator, version, key=name, coordinator_keys=[name])
            row = answer.coordinators[0] if version >= 4 else answer
            missing = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
            assert (row.error_code, row.node_id, row.host, row.port) == missing
