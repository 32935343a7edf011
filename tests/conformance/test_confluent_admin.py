"""confluent-kafka's admin client: every call that a Kafka of this kind answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from conformance.clients import WAIT_SECONDS, Sent, check_same, fresh, numbered, take
from conformance.confluent_client import ConfluentClient
from support.brokers import RunningBroker

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> ConfluentClient:
    return ConfluentClient(broker.bootstrap)


@pytest.fixture
def admin(client: ConfluentClient) -> Iterator[AdminClient]:
    yield client.admin
    client.opened.close()


def only(futures: dict[Any, Any]) -> Any:
    """The answer about the one thing that was asked for."""
    assert len(futures) == 1
    return next(iter(futures.values())).result(WAIT_SECONDS)


def refusal(futures: dict[Any, Any]) -> int:
    """The code of the error that it was refused with."""
    with pytest.raises(KafkaException) as caught:
        only(futures)
    code: int = caught.value.args[0].code()
    return code


def configs_of(admin: AdminClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = only(admin.describe_configs([ConfigResource("topic", topic)]))
    return found


def test_topics_are_created_listed_described_and_deleted(
    admin: AdminClient, broker: RunningBroker
) -> None:
    topic = fresh("topic")
    new = NewTopic(topic, 5, 1, config={"retention.ms": "123456"})
    only(admin.create_topics([new], validate_only=True))
    assert topic not in admin.list_topics(timeout=10).topics
    only(admin.create_topics([new]))
    listed = admin.list_topics(timeout=10).topics[topic]
    assert sorted(listed.partitions) == list(range(5))
    assert {about.leader for about in listed.partitions.values()} <= broker.node_ids
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == list(range(5))
    assert {partition.leader.id for partition in described.partitions} <= broker.node_ids
    assert refusal(admin.create_topics([new])) == KafkaError.TOPIC_ALREADY_EXISTS
    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=10).topics
    assert refusal(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_what_cannot_be_created_is_refused_with_its_code(admin: AdminClient) -> None:
    refused = [
        (NewTopic("no/slashes", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(fresh("none"), 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic(fresh("odd"), 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic(fresh("odd"), 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
    ]
    for new, code in refused:
        assert refusal(admin.create_topics([new])) == code, new


def test_configs_are_described_altered_and_taken_back(admin: AdminClient) -> None:
    topic = fresh("configured")
    only(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000000"})]))
    before = configs_of(admin, topic)
    assert before["retention.ms"].value == "1000000"
    assert not before["retention.ms"].is_default
    assert before["cleanup.policy"].value == "delete"
    assert before["cleanup.policy"].is_default
    assert before["max.message.bytes"].value == "1048588"
    entry = ConfigEntry("segment.ms", "777000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("topic", topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([changed]))
    after = configs_of(admin, topic)
    assert (after["segment.ms"].value, after["retention.ms"].value) == ("777000", "1000000")
    entry = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    changed = ConfigResource("topic", topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([changed]))
    assert configs_of(admin, topic)["retention.ms"].is_default
    changed = ConfigResource("topic", topic, {"retention.ms": "5000000"})
    with pytest.deprecated_call():  # the client would rather not, and others still do
        only(admin.alter_configs([changed]))
    last = configs_of(admin, topic)
    assert last["retention.ms"].value == "5000000"
    assert last["segment.ms"].is_default, "altering sets all anew"
    entry = ConfigEntry("no.such.config", "1", incremental_operation=AlterConfigOpType.SET)
    unknown = ConfigResource("topic", topic, incremental_configs=[entry])
    assert refusal(admin.incremental_alter_configs([unknown])) == KafkaError.INVALID_CONFIG


def test_altered_configs_count_from_then_on(admin: AdminClient, client: ConfluentClient) -> None:
    topic = fresh("changed")
    client.create(topic)
    early = [Sent(b"k", b"x" * 5_000, timestamp_ms=T0_MS)]
    client.produce(topic, early)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (
            ("max.message.bytes", "1000"),
            ("message.timestamp.type", "LogAppendTime"),
        )
    ]
    changed = ConfigResource("topic", topic, incremental_configs=entries)
    only(admin.incremental_alter_configs([changed]))
    with pytest.raises(KafkaException, match=client.too_large):
        client.produce(topic, early)
    client.produce(topic, numbered(2))
    reader = client.reader(topic)
    first, second, third = take(reader, 3)
    assert (first.timestamp_ms, first.log_append_time) == (T0_MS, False)
    assert second.log_append_time
    assert reader.offset_at(0, T0_MS + 1) == 1
    assert reader.offset_at(0, third.timestamp_ms) in (1, 2)
    assert reader.offset_at(0, third.timestamp_ms + 1) is None


def test_configs_of_the_broker_are_changed(admin: AdminClient, client: ConfluentClient) -> None:
    topic = fresh("following")
    client.create(topic)
    for operation, value in (
        (AlterConfigOpType.SET, "5400000"),
        (AlterConfigOpType.DELETE, "604800000"),
    ):
        entry = ConfigEntry("log.retention.ms", value, incremental_operation=operation)
        changed = ConfigResource("broker", "1", incremental_configs=[entry])
        only(admin.incremental_alter_configs([changed]))
        found = only(admin.describe_configs([ConfigResource("broker", "1")]))
        assert found["log.retention.ms"].value == value
        assert configs_of(admin, topic)["retention.ms"].value == value
    entry = ConfigEntry("log.dirs", "/tmp", incremental_operation=AlterConfigOpType.SET)
    fixed = ConfigResource("broker", "1", incremental_configs=[entry])
    assert refusal(admin.incremental_alter_configs([fixed])) == KafkaError.INVALID_REQUEST


def test_configs_of_the_broker(admin: AdminClient) -> None:
    found = only(admin.describe_configs([ConfigResource("broker", "1")]))
    assert found["broker.id"].value == "1"
    assert found["auto.create.topics.enable"].value == "true"


def test_partitions_are_added(admin: AdminClient, client: ConfluentClient) -> None:
    topic = fresh("growing")
    only(admin.create_topics([NewTopic(topic, 2, 1)]))
    only(admin.create_partitions([NewPartitions(topic, 4)]))
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4
    client.produce(topic, numbered(5, partition=3))
    check_same(take(client.reader(topic, 3), 5), numbered(5, partition=3))
    assert refusal(admin.create_partitions([NewPartitions(topic, 3)])) == (
        KafkaError.INVALID_PARTITIONS
    )


def test_records_are_deleted(admin: AdminClient, client: ConfluentClient) -> None:
    topic = fresh("shortened")
    client.create(topic)
    client.produce(topic, numbered(50))
    done = only(admin.delete_records([TopicPartition(topic, 0, 20)]))
    assert done.low_watermark == 20
    reader = client.reader(topic)  # from 0, which is gone: it starts at the earliest
    check_same(take(reader, 30), numbered(30, start=20), first_offset=20)
    assert reader.bounds(0) == (20, 50)
    assert refusal(admin.delete_records([TopicPartition(topic, 0, 51)])) == (
        KafkaError.OFFSET_OUT_OF_RANGE
    )
    assert only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 50
    assert reader.bounds(0) == (50, 50)


def test_offsets_are_listed(admin: AdminClient, client: ConfluentClient) -> None:
    topic = fresh("listed")
    client.create(topic)
    place = TopicPartition(topic, 0)

    def listed(spec: Any) -> tuple[int, int]:
        found = only(admin.list_offsets({place: spec}))
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 0
    assert listed(OffsetSpec.max_timestamp())[0] == -1
    times = [T0_MS, T0_MS + 500, T0_MS + 200]
    client.produce(topic, [Sent(b"k", b"v", timestamp_ms=time_ms) for time_ms in times])
    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 3
    assert listed(OffsetSpec.max_timestamp()) == (1, T0_MS + 500)
    assert listed(OffsetSpec.for_timestamp(T0_MS + 1)) == (1, T0_MS + 500)
    committed = {"isolation_level": IsolationLevel.READ_COMMITTED}
    assert only(admin.list_offsets({place: OffsetSpec.latest()}, **committed)).offset == 3


def test_groups_are_listed_described_and_deleted(
    admin: AdminClient, client: ConfluentClient, broker: RunningBroker
) -> None:
    topic, group = fresh("watched"), fresh("watchers")
    client.create(topic, partitions=2)
    client.produce(topic, numbered(4))
    member = client.member(group, topic, client_id="the-one", instance="one")
    take(member, 4)
    member.commit()
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(30).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    about = only(admin.describe_consumer_groups([group]))
    assert about.state == ConsumerGroupState.STABLE
    assert about.partition_assignor == "range"
    assert about.coordinator.id in broker.node_ids
    (one,) = about.members
    assert (one.client_id, one.group_instance_id, one.host) == ("the-one", "one", "/127.0.0.1")
    assigned = {(place.topic, place.partition) for place in one.assignment.topic_partitions}
    assert assigned == {(topic, 0), (topic, 1)}
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    member.close()


def test_empty_groups_are_described_and_deleted(
    admin: AdminClient, client: ConfluentClient
) -> None:
    topic, group = fresh("left"), fresh("leavers")
    client.create(topic)
    client.produce(topic, numbered(4))
    member = client.member(group, topic)
    take(member, 4)
    member.commit()
    member.close()
    assert only(admin.describe_consumer_groups([group])).state == ConsumerGroupState.EMPTY
    states = {ConsumerGroupState.EMPTY}
    found = admin.list_consumer_groups(states=states).result(30).valid
    assert group in {each.group_id for each in found}
    only(admin.delete_consumer_groups([group]))
    found = admin.list_consumer_groups().result(30).valid
    assert group not in {each.group_id for each in found}
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets_of(admin, group, topic) == {}


def offsets_of(
    admin: AdminClient, group: str, topic: str, *partitions: int
) -> dict[int, tuple[int, str | None]]:
    places = [TopicPartition(topic, number) for number in partitions] or None
    asked = ConsumerGroupTopicPartitions(group, places)
    answer = only(admin.list_consumer_group_offsets([asked]))
    return {
        place.partition: (place.offset, place.metadata or None)
        for place in answer.topic_partitions
        if place.topic == topic
    }


def test_offsets_of_groups_are_listed_and_altered(
    admin: AdminClient, client: ConfluentClient
) -> None:
    topic, group = fresh("moved"), fresh("movers")
    client.create(topic, partitions=2)
    client.produce(topic, numbered(10))
    places = [TopicPartition(topic, 0, 7, "by hand")]
    only(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]))
    assert offsets_of(admin, group, topic) == {0: (7, "by hand")}
    assert offsets_of(admin, group, topic, 0, 1) == {0: (7, "by hand"), 1: (-1001, None)}
    member = client.member(group, topic)
    check_same(take(member, 3), numbered(3, start=7), first_offset=7)
    # A group that has members keeps its own.
    places = [TopicPartition(topic, 0, 1)]
    asked = ConsumerGroupTopicPartitions(group, places)
    (place,) = only(admin.alter_consumer_group_offsets([asked])).topic_partitions
    assert place.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert offsets_of(admin, group, topic) == {0: (7, "by hand")}


def test_the_cluster_is_described(admin: AdminClient, broker: RunningBroker) -> None:
    about = admin.describe_cluster(include_authorized_operations=True).result(WAIT_SECONDS)
    assert about.cluster_id == admin.cluster_id()
    assert about.controller.id in broker.node_ids
    found = sorted((node.id, node.host, node.port) for node in about.nodes)
    assert found == [(node.node_id, node.host, node.port) for node in broker.nodes]


def test_a_topic_that_is_not_there_is_unknown(client: ConfluentClient) -> None:
    reader = client.member(fresh("nobody"), fresh("absent"))
    with pytest.raises(KafkaException, match=client.unknown_topic):
        take(reader, 1)
    client.opened.close()


def test_a_partition_that_is_not_there_is_unknown(client: ConfluentClient) -> None:
    topic = fresh("narrow")
    client.create(topic)
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        client.produce(topic, numbered(1, partition=9))
