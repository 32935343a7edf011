"""Admin requests about leaders, over the wire, to either of two live brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.peer_link import PeerError
from neve.errors import UnavailableError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.describe_cluster import DESCRIBE_CLUSTER
from neve.protocol.messages.elect_leaders import ELECT_LEADERS
from neve.protocol.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from neve.protocol.messages.unregister_broker import UNREGISTER_BROKER
from support.two_brokers import refresh, two_running_brokers
from support.wire import Wire

PREFERRED, UNCLEAN = 0, 1
NONE = ErrorCode.NONE


brokers = partial(two_running_brokers, idle=False)


def leaders(broker: Broker, name: str = "t") -> list[int]:
    """The node ids of a topic's leaders, as a broker knows them; -1: none."""
    state = broker.node.cluster.state
    topic = state.topic(name)
    assert topic is not None
    owners = (state.brokers.get(row.leader) for row in topic.partitions)
    return [-1 if owner is None else owner.node_id for owner in owners]


async def until_led(broker: Broker, wanted: list[int]) -> None:
    """Wait until the leaders are these."""
    async with runtime.deadline(8):
        while leaders(broker) != wanted:
            await refresh(broker)
            await runtime.sleep(0.02)


async def alter(wire: Wire, rows: Mapping[int, Sequence[int] | None], name: str = "t") -> list[int]:
    """Reassign partitions of a topic. Returns the error code of each."""
    request = ALTER_PARTITION_REASSIGNMENTS.Request
    parts = [
        request.Partition(partition_index=at, replicas=None if nodes is None else list(nodes))
        for at, nodes in rows.items()
    ]
    body = request(topics=[request.Topic(name=name, partitions=parts)])
    answer = await wire.ask(ALTER_PARTITION_REASSIGNMENTS, 1, body)
    assert answer.error_code == NONE
    return [row.error_code for topic in answer.responses for row in topic.partitions]


async def in_progress(
    wire: Wire, topics: Mapping[str, list[int]] | None = None
) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    request = LIST_PARTITION_REASSIGNMENTS.Request
    rows = None
    if topics is not None:
        rows = [request.Topic(name=name, partition_indexes=at) for name, at in topics.items()]
    answer = await wire.ask(LIST_PARTITION_REASSIGNMENTS, 0, request(topics=rows))
    assert answer.error_code == NONE
    return {
        (topic.name, row.partition_index): (
            row.replicas,
            row.adding_replicas,
            row.removing_replicas,
        )
        for topic in answer.topics
        for row in topic.partitions
    }


async def elect(
    wire: Wire, numbers: Sequence[int] | None, kind: int = PREFERRED, version: int = 2
) -> dict[int, int]:
    request = ELECT_LEADERS.Request
    rows = None if numbers is None else [request.Topic(topic="t", partitions=list(numbers))]
    body = request(election_type=kind, topic_partitions=rows)
    answer = await wire.ask(ELECT_LEADERS, version, body)
    assert answer.error_code == NONE
    results = answer.replica_election_results
    return {row.partition_id: row.error_code for topic in results for row in topic.partition_result}


# --- reassignments


async def test_the_named_broker_pulls_the_partition_without_waiting_for_quiet() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire, Wire.to(two) as other:
        assert leaders(one) == [1, 1]
        assert await alter(wire, {1: [2]}) == [NONE]
        assert await in_progress(other) == {("t", 1): ([2, 1], [2], [1])}
        await until_led(one, [1, 2])
        assert await in_progress(other) == {}
        assert await alter(other, {1: [1, 2]}) == [NONE]
        assert await in_progress(wire) == {("t", 1): ([1, 2], [1], [])}
        await until_led(two, [1, 1])


async def test_it_stays_until_it_is_cancelled() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire, Wire.to(two) as other:
        assert await alter(wire, {0: [2], 1: [2]}) == [NONE, NONE]
        await until_led(one, [2, 2])
        await two.node.cluster.rebalance()
        await runtime.sleep(1.2)
        await refresh(one)
        assert leaders(one) == [2, 2], "placement would give broker 1 one of them"
        assert await alter(other, {0: None, 1: None}) == [NONE, NONE]
        await one.node.cluster.rebalance()
        async with runtime.deadline(8):
            while leaders(one) == [2, 2]:
                await runtime.sleep(0.02)
        assert sorted(leaders(one)) == [1, 2]
        assert await alter(other, {0: None}) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


async def test_one_that_no_broker_can_carry_out_stays_in_progress() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await one.node.cluster.set_draining(2, draining=True)
        await refresh(two)
        assert await alter(wire, {1: [2]}) == [NONE]
        assert await in_progress(wire) == {("t", 1): ([2, 1], [2], [1])}
        await runtime.sleep(1.2)
        assert leaders(one) == [1, 1]


async def test_only_the_partitions_that_were_asked_for_are_listed() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await one.node.cluster.set_draining(2, draining=True)
        await refresh(two)
        assert await alter(wire, {0: [2], 1: [2]}) == [NONE, NONE]
        assert set(await in_progress(wire, {"t": [1]})) == {("t", 1)}
        assert set(await in_progress(wire, {"t": [0, 1], "none": [0]})) == {("t", 0), ("t", 1)}
        assert await in_progress(wire, {"t": [7]}) == {}


@pytest.mark.parametrize("nodes", [[9], [1, 9], [1, 1], []])
async def test_brokers_that_cannot_be_named_are_refused_beside_those_that_can(
    nodes: list[int],
) -> None:
    async with brokers() as (one, _), Wire.to(one) as wire:
        codes = await alter(wire, {0: nodes, 1: [1], 2: [1]})
        assert codes == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await alter(wire, {0: [1]}, "none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        topic = one.node.cluster.state.topic("t")
        assert topic is not None
        assert topic.preferred == {1: (1,)}


async def test_a_partition_that_is_named_twice_is_not_reassigned() -> None:
    async with brokers() as (one, _), Wire.to(one) as wire:
        request = ALTER_PARTITION_REASSIGNMENTS.Request
        part = request.Partition(partition_index=0, replicas=[2])
        body = request(topics=[request.Topic(name="t", partitions=[part, part])])
        answer = await wire.ask(ALTER_PARTITION_REASSIGNMENTS, 0, body)
        (row,) = answer.responses[0].partitions
        assert row.error_code == ErrorCode.INVALID_REQUEST
        topic = one.node.cluster.state.topic("t")
        assert topic is not None
        assert topic.preferred == {}


# --- manual assignments of new partitions


async def test_a_topic_is_created_and_grows_where_a_client_wants_it() -> None:
    async with brokers() as (one, two), Wire.to(two) as wire:
        request = CREATE_TOPICS.Request
        rows = [
            request.Assignment(partition_index=at, broker_ids=nodes)
            for at, nodes in {0: [2, 1], 1: [2], 2: [1]}.items()
        ]
        topic = request.Topic(
            name="placed", num_partitions=-1, replication_factor=-1, assignments=rows
        )
        answer = await wire.ask(CREATE_TOPICS, 7, request(topics=[topic], timeout_ms=9_000))
        assert answer.topics[0].error_code == NONE
        await refresh(one)
        assert leaders(one, "placed") == [2, 2, 1]
        grow = CREATE_PARTITIONS.Request
        row = grow.Topic(name="placed", count=4, assignments=[grow.Assignment(broker_ids=[2])])
        grown = await wire.ask(CREATE_PARTITIONS, 3, grow(topics=[row], timeout_ms=9_000))
        assert grown.results[0].error_code == NONE
        await refresh(one)
        assert leaders(one, "placed") == [2, 2, 1, 2]
        await two.node.cluster.rebalance()
        await runtime.sleep(1.2)
        await refresh(one)
        assert leaders(one, "placed") == [2, 2, 1, 2]


# --- elections


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_an_election_lets_the_right_broker_lead_at_once(version: int) -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await two.membership.close()  # it pulls nothing by itself
        assert await alter(wire, {1: [2]}) == [NONE]
        assert await elect(wire, [0, 1, 7], version=version) == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            1: NONE,
            7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert leaders(one) == [1, 2]
        assert await elect(wire, [1], version=version) == {1: ErrorCode.ELECTION_NOT_NEEDED}


async def test_the_broker_that_is_asked_may_be_the_one_that_should_lead() -> None:
    async with brokers() as (_, two), Wire.to(two) as wire:
        await two.node.cluster.set_preferred({_key(two, 1): (2,)})
        assert await elect(wire, [1]) == {1: NONE}
        assert leaders(two) == [1, 2]


async def test_an_election_of_all_names_only_those_that_were_needed() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await two.membership.close()
        assert await alter(wire, {0: [1], 1: [2]}) == [NONE, NONE]
        assert await elect(wire, None) == {1: NONE}
        assert await elect(wire, None) == {}


async def test_a_preferred_broker_that_cannot_lead_is_named() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await one.node.cluster.set_draining(2, draining=True)
        await refresh(two)
        assert await alter(wire, {1: [2]}) == [NONE]
        assert await elect(wire, [1]) == {1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


async def test_a_preferred_broker_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:
        await two.membership.close()

        async def silent(*_: Any) -> int:
            raise PeerError("it does not answer")

        monkeypatch.setattr(one.peers, "pull", silent)
        assert await alter(wire, {1: [2]}) == [NONE]
        assert await elect(wire, [1]) == {1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert leaders(one) == [1, 1]


async def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    async with brokers() as (one, _), Wire.to(one) as wire:
        assert await elect(wire, [0, 1], UNCLEAN) == dict.fromkeys(
            (0, 1), int(ErrorCode.ELECTION_NOT_NEEDED)
        )
        request = ELECT_LEADERS.Request
        answer = await wire.ask(ELECT_LEADERS, 2, request(election_type=7, topic_partitions=None))
        assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- removing brokers


async def test_only_a_broker_that_has_ended_is_removed() -> None:
    async with brokers() as (one, two), Wire.to(one) as wire:

        async def remove(node_id: int) -> int:
            body = UNREGISTER_BROKER.Request(broker_id=node_id)
            answer = await wire.ask(UNREGISTER_BROKER, 0, body)
            assert bool(answer.error_message) == bool(answer.error_code)
            return int(answer.error_code)

        async def known() -> dict[int, bool]:
            body = DESCRIBE_CLUSTER.Request(include_fenced_brokers=True)
            answer = await wire.ask(DESCRIBE_CLUSTER, 2, body)
            return {row.broker_id: row.is_fenced for row in answer.brokers}

        await alter(wire, {1: [2]})
        await until_led(one, [1, 2])
        assert await remove(2) == ErrorCode.INVALID_REQUEST
        assert await remove(9) == ErrorCode.BROKER_ID_NOT_REGISTERED
        await one.node.cluster.expire(two.node.incarnation)
        assert await known() == {1: False, 2: True}
        assert await remove(2) == NONE
        assert await known() == {1: False}
        assert await remove(2) == ErrorCode.BROKER_ID_NOT_REGISTERED
        topic = one.node.cluster.state.topic("t")
        assert topic is not None
        assert topic.preferred == {}


def _key(broker: Broker, number: int) -> tuple[str, int]:
    topic = broker.node.cluster.state.topic("t")
    assert topic is not None
    return topic.topic_id, number


# --- any broker


async def test_a_broker_reads_the_cluster_log_before_it_handles_an_admin_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire, Wire.to(two) as other:
        monkeypatch.setattr(one.peers, "announce", lambda _: None)
        before = two.node.cluster.view.position
        assert await alter(wire, {1: [2]}) == [NONE]
        assert two.node.cluster.view.position == before, "nobody has told it"
        assert set(await in_progress(other)) == {("t", 1)}


async def test_without_the_store_an_admin_request_is_answered_from_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_running_brokers() as (one, _), Wire.to(one) as wire:

        async def unavailable() -> None:
            raise UnavailableError("meta/log/", "the store is down")

        monkeypatch.setattr(one.node.cluster, "refresh", unavailable)
        body = DESCRIBE_CLUSTER.Request()
        answer = await wire.ask(DESCRIBE_CLUSTER, 2, body)
        assert [row.broker_id for row in answer.brokers] == [1, 2]
