"""aiokafka's admin client: every call that a Kafka of this kind answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError

from conformance.aiokafka_client import AioKafkaClient
from conformance.clients import check_same, fresh, numbered, take
from support.brokers import RunningBroker


@pytest.fixture(scope="module")
def shared_client(broker: RunningBroker) -> Iterator[AioKafkaClient]:
    made = AioKafkaClient(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def client(shared_client: AioKafkaClient) -> Iterator[AioKafkaClient]:
    yield shared_client
    shared_client.opened.close()


def run(client: AioKafkaClient, call: str, *arguments: Any, **named: Any) -> Any:
    return client.loop.run(getattr(client.admin, call)(*arguments, **named))


def configs_of(client: AioKafkaClient, topic: str) -> dict[str, str]:
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    (answer,) = run(client, "describe_configs", [asked])
    ((code, _, _, name, rows),) = answer.resources
    assert (code, name) == (0, topic)
    return {row[0]: row[1] for row in rows}


def test_topics_are_created_listed_described_and_deleted(
    client: AioKafkaClient, broker: RunningBroker
) -> None:
    topic = fresh("topic")
    run(client, "create_topics", [NewTopic(topic, 3, 1)], validate_only=True)
    assert topic not in run(client, "list_topics")
    client.create(topic, partitions=3)
    assert topic in run(client, "list_topics")
    (described,) = run(client, "describe_topics", [topic])
    assert sorted(each["partition"] for each in described["partitions"]) == [0, 1, 2]
    assert {each["leader"] for each in described["partitions"]} <= broker.node_ids
    with pytest.raises(TopicAlreadyExistsError):
        client.create(topic)
    client.delete(topic)
    assert topic not in run(client, "list_topics")


def test_configs_are_described_and_altered(client: AioKafkaClient) -> None:
    topic = fresh("configured")
    client.create(topic, retention_ms="1000000")
    assert configs_of(client, topic)["retention.ms"] == "1000000"
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "777000"})
    (answer,) = run(client, "alter_configs", [changed])
    assert [row[0] for row in answer.resources] == [0]
    after = configs_of(client, topic)
    assert after["segment.ms"] == "777000"
    assert after["retention.ms"] != "1000000", "altering sets all anew"


def test_partitions_are_added(client: AioKafkaClient) -> None:
    topic = fresh("growing")
    client.create(topic, partitions=2)
    answer = run(client, "create_partitions", {topic: NewPartitions(4)})
    assert [row[1] for row in answer.topic_errors] == [0]
    client.produce(topic, numbered(5, partition=3))
    check_same(take(client.reader(topic, 3), 5), numbered(5, partition=3))


def test_records_are_deleted(client: AioKafkaClient) -> None:
    topic = fresh("shortened")
    client.create(topic)
    client.produce(topic, numbered(50))
    place = TopicPartition(topic, 0)
    done = run(client, "delete_records", {place: RecordsToDelete(20)})
    assert done == {place: 20}
    reader = client.reader(topic)
    check_same(take(reader, 30), numbered(30, start=20), first_offset=20)
    assert reader.bounds(0) == (20, 50)
    with pytest.raises(OffsetOutOfRangeError):
        run(client, "delete_records", {place: RecordsToDelete(51)})


def test_groups_are_listed_and_described(client: AioKafkaClient, broker: RunningBroker) -> None:
    topic, group = fresh("watched"), fresh("watchers")
    client.create(topic, partitions=2)
    client.produce(topic, numbered(4))
    member = client.member(group, topic, client_id="the-one")
    take(member, 4)
    member.commit()
    assert (group, "consumer") in run(client, "list_consumer_groups")
    (answer,) = run(client, "describe_consumer_groups", [group])
    (about,) = answer.groups
    assert about[:5] == (0, group, "Stable", "consumer", "range")
    (one,) = about[5]
    assert one[1:3] == ("the-one", "/127.0.0.1")
    assert run(client, "find_coordinator", group) in broker.node_ids
    found = run(client, "list_consumer_group_offsets", group)
    assert {place: about.offset for place, about in found.items()} == {
        TopicPartition(topic, 0): 4,
        TopicPartition(topic, 1): 0,
    }
    wanted = [TopicPartition(topic, 0)]
    found = run(client, "list_consumer_group_offsets", group, partitions=wanted)
    assert [about.offset for about in found.values()] == [4]
    never = run(client, "list_consumer_group_offsets", fresh("nobody"), partitions=wanted)
    assert [about.offset for about in never.values()] == [-1]


def test_the_cluster_is_described(client: AioKafkaClient, broker: RunningBroker) -> None:
    about = run(client, "describe_cluster")
    assert about["controller_id"] in broker.node_ids
    found = sorted((row["node_id"], row["host"], row["port"]) for row in about["brokers"])
    assert found == [(node.node_id, node.host, node.port) for node in broker.nodes]
