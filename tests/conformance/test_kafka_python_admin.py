"""kafka-python's admin client: every call that a Kafka of this kind answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.clients import Sent, check_same, fresh, numbered, take
from conformance.kafka_python_client import KafkaPythonClient, TopicPartition
from support.brokers import RunningBroker

# isort: split
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    MemberToRemove,
    OffsetSpec,
)
from kafka.errors import (
    InvalidConfigurationError,
    NoError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[KafkaPythonClient]:
    made = KafkaPythonClient(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def admin(client: KafkaPythonClient) -> Iterator[KafkaAdminClient]:
    yield client.admin
    client.opened.close()


def configs_of(admin: KafkaAdminClient, topic: str) -> Any:
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    return admin.describe_configs([asked], config_filter="all")["topic"][topic]


def alter(admin: KafkaAdminClient, topic: str, incremental: bool, **configs: Any) -> None:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, given)
    admin.alter_configs([changed], incremental=incremental)


def test_topics_are_created_listed_described_and_deleted(
    admin: KafkaAdminClient, broker: RunningBroker
) -> None:
    topic = fresh("topic")
    about = {topic: {"num_partitions": 3, "replication_factor": 1}}
    admin.create_topics(about, validate_only=True)
    assert topic not in admin.list_topics()
    admin.create_topics(about)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert described["name"] == topic
    partitions = described["partitions"]
    assert sorted(each["partition_index"] for each in partitions) == [0, 1, 2]
    assert {each["leader_id"] for each in partitions} <= broker.node_ids
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(about)
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_topics_are_described_page_by_page(admin: KafkaAdminClient) -> None:
    topic = fresh("pages")
    admin.create_topics({topic: {"num_partitions": 5, "replication_factor": 1}})
    seen, cursor = [], None
    while True:
        page = admin.describe_topic_partitions([topic], 2, cursor)
        for described in page["topics"]:
            seen += [each["partition_index"] for each in described["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_topics_with_the_brokers_own_numbers(admin: KafkaAdminClient) -> None:
    topic = fresh("default")
    admin.create_topics([topic])
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 1


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_described_altered_and_taken_back(
    admin: KafkaAdminClient, incremental: bool
) -> None:
    topic = fresh("configured")
    admin.create_topics({topic: {"configs": {"retention.ms": "1000000"}}})
    before = configs_of(admin, topic)
    assert before["retention.ms"]["value"] == "1000000"
    assert before["cleanup.policy"]["value"] == "delete"
    alter(admin, topic, incremental, segment_ms="777000")
    after = configs_of(admin, topic)
    values = after["segment.ms"]["value"], after["retention.ms"]["value"]
    assert values == ("777000", "1000000")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, ["segment.ms"])
    admin.reset_configs([resource], incremental=incremental)
    assert configs_of(admin, topic)["segment.ms"]["value"] == before["segment.ms"]["value"]


def test_a_bad_value_is_refused(admin: KafkaAdminClient) -> None:
    topic = fresh("odd")
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({topic: {"configs": {"retention.ms": "soon"}}})
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({topic: {"configs": {"no.such.config": "1"}}})


def test_partitions_are_added(admin: KafkaAdminClient, client: KafkaPythonClient) -> None:
    topic = fresh("growing")
    client.create(topic, partitions=2)
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    client.produce(topic, numbered(5, partition=3))
    check_same(take(client.reader(topic, 3), 5), numbered(5, partition=3))


def test_records_are_deleted(admin: KafkaAdminClient, client: KafkaPythonClient) -> None:
    topic = fresh("shortened")
    client.create(topic)
    client.produce(topic, numbered(50))
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 20})[place]["low_watermark"] == 20
    reader = client.reader(topic)
    check_same(take(reader, 30), numbered(30, start=20), first_offset=20)
    assert reader.bounds(0) == (20, 50)
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({place: 51})


def test_offsets_are_listed(admin: KafkaAdminClient, client: KafkaPythonClient) -> None:
    topic = fresh("listed")
    client.create(topic)
    times = [T0_MS, T0_MS + 500, T0_MS + 200]
    client.produce(topic, [Sent(b"k", b"v", timestamp_ms=time_ms) for time_ms in times])
    place = TopicPartition(topic, 0)
    expected: list[tuple[Any, int]] = [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 1),
        (OffsetSpec.EARLIEST_LOCAL, 0),
        (T0_MS + 1, 1),
        (T0_MS, 0),
    ]
    for spec, offset in expected:
        assert admin.list_partition_offsets({place: spec})[place].offset == offset, spec
    found = admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place]
    assert found.timestamp == T0_MS + 500


def test_groups_are_listed_described_and_deleted(
    admin: KafkaAdminClient, client: KafkaPythonClient
) -> None:
    topic, group = fresh("watched"), fresh("watchers")
    client.create(topic, partitions=2)
    client.produce(topic, numbered(4))
    member = client.member(group, topic, client_id="the-one", instance="one")
    take(member, 4)
    member.commit()
    listed = {each["group_id"]: each for each in admin.list_groups()}
    assert (listed[group]["protocol_type"], listed[group]["group_state"]) == ("consumer", "Stable")
    assert group in {each["group_id"] for each in admin.list_groups(states_filter=["Stable"])}
    assert group not in {each["group_id"] for each in admin.list_groups(states_filter=["Empty"])}
    about = admin.describe_groups([group])[group]
    assert (about["group_state"], about["protocol_data"]) == ("Stable", "range")
    (one,) = about["members"]
    assert (one["client_id"], one["group_instance_id"]) == ("the-one", "one")
    assert one["client_host"] == "/127.0.0.1"
    (assigned,) = one["member_assignment"]["assigned_partitions"]
    assert (assigned["topic"], sorted(assigned["partitions"])) == (topic, [0, 1])
    assert admin.delete_groups([group])[group] == "NonEmptyGroupError"
    admin.remove_group_members(group, [MemberToRemove(group_instance_id="one")])
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    member.close()
    assert admin.delete_groups([group])[group] == "OK"
    assert group not in {each["group_id"] for each in admin.list_groups()}
    assert admin.delete_groups([group])[group] == "GroupIdNotFoundError"


def test_offsets_of_groups_are_listed_altered_and_deleted(
    admin: KafkaAdminClient, client: KafkaPythonClient
) -> None:
    topic, group = fresh("moved"), fresh("movers")
    client.create(topic, partitions=2)
    client.produce(topic, numbered(10))
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    asked = OffsetAndMetadata(7, "by hand", -1)
    assert admin.alter_group_offsets(group, {place: asked}) == {place: NoError}
    found = admin.list_group_offsets({group: None})[group]
    assert {key: (about.offset, about.metadata) for key, about in found.items()} == {
        place: (7, "by hand")
    }
    assert admin.list_group_offsets({group: [other]})[group][other].offset == -1
    member = client.member(group, topic)
    check_same(take(member, 3), numbered(3, start=7), first_offset=7)
    member.close()
    moved = admin.reset_group_offsets(group, {place: OffsetSpec.EARLIEST})
    assert moved[place] == {"error": NoError, "offset": 0}
    assert admin.delete_group_offsets(group, [place]) == {place: NoError}
    assert admin.list_group_offsets({group: [place]})[group][place].offset == -1


def test_the_cluster_is_described(admin: KafkaAdminClient, broker: RunningBroker) -> None:
    about = admin.describe_cluster()
    assert about["controller_id"] in broker.node_ids
    assert about["cluster_id"]
    found = sorted((each["host"], each["port"]) for each in about["brokers"])
    assert found == sorted(broker.addresses)


def test_log_directories_are_described(
    admin: KafkaAdminClient, client: KafkaPythonClient, broker: RunningBroker
) -> None:
    topic = fresh("sized")
    client.create(topic)
    client.produce(topic, [Sent(None, bytes(1000) * 5)])
    folders = [folder for about in admin.describe_log_dirs() for folder in about["log_dirs"]]
    assert [folder["error_code"] for folder in folders] == [0] * len(broker.nodes)
    assert all(folder["log_dir"].endswith("bucket") for folder in folders)
    topics = [row for folder in folders for row in folder["topics"]]
    sizes = {each["name"]: each["partitions"][0]["partition_size"] for each in topics}
    assert 5_000 < sizes[topic] < 6_000


def test_producers_are_described(admin: KafkaAdminClient, client: KafkaPythonClient) -> None:
    topic = fresh("produced")
    client.create(topic)
    client.produce(topic, numbered(3), idempotent=True)
    place = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([place])[place].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_a_topic_that_is_not_there_is_unknown(admin: KafkaAdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.list_partition_offsets({TopicPartition(fresh("absent"), 0): OffsetSpec.LATEST})
