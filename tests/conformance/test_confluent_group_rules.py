"""What a group's coordinator refuses, and with which of Kafka's errors, seen by confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from conformance.clients import (
    WAIT_SECONDS,
    Reader,
    check_same,
    fresh,
    numbered,
    take,
    wait_until,
)
from conformance.confluent_client import ConfluentClient, ConfluentReader
from support.brokers import RunningBroker


@pytest.fixture(scope="module")
def shared_client(broker: RunningBroker) -> ConfluentClient:
    return ConfluentClient(broker.bootstrap)


@pytest.fixture
def client(shared_client: ConfluentClient) -> Iterator[ConfluentClient]:
    yield shared_client
    shared_client.opened.close()


@pytest.fixture
def member(client: ConfluentClient) -> ConfluentReader:
    """The only member of a group, that has read ten records."""
    topic = fresh("ruled")
    client.create(topic)
    client.produce(topic, numbered(10))
    joined = client.member(fresh("rulers"), topic)
    check_same(take(joined, 10), numbered(10))
    return joined


def refusal_of(work: object, *arguments: object, **named: object) -> int:
    with pytest.raises(KafkaException) as caught:
        work(*arguments, **named)  # type: ignore[operator]
    code: int = caught.value.args[0].code()
    return code


def joining_error(joined: Reader) -> KafkaError:
    """What a member is told that may not join."""
    with pytest.raises(KafkaException) as caught:
        take(joined, 1)
    error: KafkaError = caught.value.args[0]
    return error


def test_a_note_that_is_too_long(member: ConfluentReader) -> None:
    code = refusal_of(member.commit_offset, 0, 1, "x" * 5_000)
    assert code == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert member.committed(0) is None


def test_a_commit_for_a_partition_that_is_not_there(member: ConfluentReader) -> None:
    code = refusal_of(member.commit_offset, 99, 1, "")
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_member_that_speaks_no_common_protocol(
    client: ConfluentClient, member: ConfluentReader
) -> None:
    stranger = client.member(member.group, member.topic, assignor="roundrobin")
    assert joining_error(stranger).code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_that_is_too_short(client: ConfluentClient) -> None:
    topic = fresh("hasty")
    client.create(topic)
    hasty = client.member(fresh("hurry"), topic, session_ms=400)
    assert joining_error(hasty).code() == KafkaError.INVALID_SESSION_TIMEOUT


def test_the_older_of_two_with_one_instance_id_is_fenced(client: ConfluentClient) -> None:
    topic, group = fresh("twins"), fresh("twinned")
    client.create(topic)
    older = client.member(group, topic, instance="twin")
    wait_until([older], lambda: older.assigned() == {0}, "the older one has joined")
    newer = client.member(group, topic, instance="twin")
    wait_until([newer], lambda: newer.assigned() == {0}, "the newer one has its place")
    assert "Static consumer fenced" in joining_error(older).str()


def test_a_group_that_nobody_joined(client: ConfluentClient) -> None:
    nobody = fresh("nobody")
    about = client.admin.describe_consumer_groups([nobody])[nobody].result(WAIT_SECONDS)
    assert about.state == ConsumerGroupState.DEAD
    assert list(about.members) == []


def test_new_partitions_are_shared_out(client: ConfluentClient) -> None:
    topic, group = fresh("widened"), fresh("widening")
    client.create(topic)
    joined = client.member(group, topic, **client.frequent_looks)
    wait_until([joined], lambda: joined.assigned() == {0}, "the first partition")
    client.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_SECONDS)
    wait_until([joined], lambda: joined.assigned() == {0, 1, 2}, "the new partitions")
    client.produce(topic, numbered(5, partition=2))
    check_same(take(joined, 5), numbered(5, partition=2))


def test_a_commit_without_joining(client: ConfluentClient) -> None:
    topic, group = fresh("simple"), fresh("simply")
    client.create(topic)
    client.produce(topic, numbered(10))
    reader = client.reader(topic, group_id=group)
    take(reader, 10)
    reader.consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    reader.close()
    check_same(take(client.member(group, topic), 4), numbered(4, start=6), first_offset=6)
