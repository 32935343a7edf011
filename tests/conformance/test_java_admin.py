"""Kafka's Java admin client: every call that a Kafka of this kind answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.clients import Sent, check_same, fresh, numbered, take, wait_until
from conformance.driver import ClientError
from conformance.java_client import JavaClient, start_java_client
from support.brokers import RunningBroker

T0_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def running(
    broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    made = start_java_client(broker.bootstrap, tmp_path_factory.mktemp("java") / "log")
    yield made
    made.close()


@pytest.fixture
def client(running: JavaClient) -> Iterator[JavaClient]:
    yield running
    running.opened.close()


def admin(client: JavaClient, function: str, **arguments: Any) -> Any:
    return client.driver.call(f"admin.{function}", **arguments)


def filled(client: JavaClient, partitions: int = 1) -> str:
    """A topic of 100 records, a second apart."""
    topic = fresh("filled")
    client.create(topic, partitions=partitions)
    client.produce(
        topic,
        [
            Sent(b"k", b"value %d" % number, timestamp_ms=T0_MS + 1_000 * number)
            for number in range(100)
        ],
        idempotent=True,
    )
    return topic


def test_the_cluster(client: JavaClient, broker: RunningBroker) -> None:
    found = admin(client, "cluster")
    expected = [f"{node.node_id}@{node.bootstrap}" for node in broker.nodes]
    assert sorted(found["nodes"]) == expected
    assert found["controller"] in broker.node_ids
    assert found["id"]


def test_topics_come_grow_and_go(client: JavaClient, broker: RunningBroker) -> None:
    topic = fresh("living")
    client.create(topic, partitions=2)
    assert topic in admin(client, "topics")
    with pytest.raises(ClientError, match="TopicExists"):
        client.create(topic)
    with pytest.raises(ClientError, match="InvalidPartitions"):
        admin(client, "grow", topic=topic, total=1)
    admin(client, "grow", topic=topic, total=5)
    about = admin(client, "describe", topic=topic)
    assert about["name"] == about["name_by_id"] == topic
    assert set(about["leaders"]) <= broker.node_ids
    assert all(1 <= count <= len(broker.nodes) for count in about["isr"])
    assert not about["internal"]
    client.delete(topic)
    assert topic not in admin(client, "topics")
    with pytest.raises(ClientError, match="UnknownTopicOrPartition"):
        admin(client, "describe", topic=topic)
    with pytest.raises(ClientError, match="InvalidTopic"):
        client.create("no/such/name")


def test_configs_of_a_topic(client: JavaClient) -> None:
    topic = fresh("configured")
    client.create(topic, retention_ms="3600000")
    about = {"kind": "TOPIC", "name": topic}
    assert admin(client, "configs", **about)["retention.ms"] == "3600000 DYNAMIC_TOPIC_CONFIG"
    changes = {"set": {"retention.bytes": "1000000"}, "removed": ["retention.ms"]}
    admin(client, "set_configs", **about, **changes)
    found = admin(client, "configs", **about)
    assert found["retention.bytes"] == "1000000 DYNAMIC_TOPIC_CONFIG"
    assert found["retention.ms"] == "604800000 DEFAULT_CONFIG"
    with pytest.raises(ClientError, match="InvalidConfiguration"):
        admin(client, "set_configs", **about, set={"retention.ms": "soon"}, removed=[])


def test_configs_of_the_broker(client: JavaClient) -> None:
    found = admin(client, "configs", kind="BROKER", name="1")
    assert found["auto.create.topics.enable"].startswith("true ")


def test_offsets(client: JavaClient) -> None:
    topic = filled(client)
    at = {"topic": topic, "partition": 0}
    assert admin(client, "offsets", **at, at="earliest") == [0, -1]
    assert admin(client, "offsets", **at, at="latest") == [100, -1]
    assert admin(client, "offsets", **at, at="max-timestamp") == [99, T0_MS + 99_000]
    assert admin(client, "offsets", **at, at=str(T0_MS + 41_001)) == [42, T0_MS + 42_000]
    assert admin(client, "offsets", **at, at=str(T0_MS + 100_000)) == [-1, -1]


def test_deleting_records(client: JavaClient) -> None:
    topic = filled(client)
    at = {"topic": topic, "partition": 0}
    assert admin(client, "delete_records", **at, before=40) == 40
    assert admin(client, "offsets", **at, at="earliest") == [40, -1]
    reader = client.reader(topic, offset=0)  # auto.offset.reset takes it to the start
    got = take(reader, 60)
    assert [record.offset for record in got] == list(range(40, 100))
    with pytest.raises(ClientError, match="OffsetOutOfRange"):
        admin(client, "delete_records", **at, before=101)


def test_producers_and_sizes(client: JavaClient) -> None:
    topic = filled(client)
    assert admin(client, "producers", topic=topic, partition=0) == [99]
    assert admin(client, "log_dirs")[f"{topic}-0"] > 100


def test_groups(client: JavaClient) -> None:
    topic, group = filled(client, partitions=2), fresh("administered")
    member = client.member(group, topic)
    take(member, 100)
    member.commit()
    assert admin(client, "groups")[group] == "Stable"
    about = admin(client, "group", group=group)
    assert about == {"state": "Stable", "assignor": "range", "members": [[0, 1]]}
    assert admin(client, "group_offsets", group=group)[f"{topic}-0"] == [100, ""]
    with pytest.raises(ClientError, match="GroupNotEmpty"):
        admin(client, "delete_group", group=group)
    with pytest.raises(ClientError, match="GroupSubscribedToTopic"):
        admin(client, "delete_group_offset", group=group, topic=topic, partition=0)
    member.close()
    assert admin(client, "group", group=group)["state"] == "Empty"
    place = {"group": group, "topic": topic, "partition": 0}
    admin(client, "set_group_offset", **place, offset=95, metadata="back")
    assert admin(client, "group_offsets", group=group)[f"{topic}-0"] == [95, "back"]
    member = client.member(group, topic)
    assert [record.offset for record in take(member, 5)] == [95, 96, 97, 98, 99]
    member.close()
    admin(client, "delete_group_offset", **place)
    assert f"{topic}-0" not in admin(client, "group_offsets", group=group)
    admin(client, "delete_group", group=group)
    assert group not in admin(client, "groups")


def test_members_are_sent_away(client: JavaClient) -> None:
    topic, group = filled(client), fresh("emptied")
    member = client.member(group, topic, instance="static")
    wait_until([member], lambda: member.assigned() == {0}, "it has joined")
    member.close()
    assert len(admin(client, "group", group=group)["members"]) == 1
    admin(client, "remove_members", group=group)
    assert admin(client, "group", group=group)["state"] == "Empty"


def test_a_group_that_commits_without_members(client: JavaClient) -> None:
    topic, group = filled(client), fresh("memberless")
    admin(client, "set_group_offset", group=group, topic=topic, partition=0, offset=90)
    member = client.member(group, topic)
    assert [record.offset for record in take(member, 10)] == list(range(90, 100))


def test_a_member_by_the_newer_group_protocol_is_told_that_there_is_none(
    client: JavaClient,
) -> None:
    topic = fresh("newer")
    client.create(topic)
    member = client.member(fresh("newer"), topic, group_protocol="consumer")
    with pytest.raises(ClientError, match="UnsupportedVersion"):
        wait_until([member], lambda: False, "it is told")


def test_the_consumer_of_the_newer_group_protocol_reads_without_a_group(
    client: JavaClient,
) -> None:
    topic = fresh("newer-reader")
    client.create(topic)
    client.produce(topic, numbered(50), codec="lz4")
    check_same(take(client.reader(topic, group_protocol="consumer"), 50), numbered(50))


def test_a_transaction_is_refused(client: JavaClient) -> None:
    topic = fresh("transactional")
    client.create(topic)
    with pytest.raises(ClientError, match="TransactionalIdAuthorization"):
        client.driver.call("begin_transaction", transactional_id="t")
    client.produce(topic, numbered(1))
    check_same(take(client.reader(topic), 1), numbered(1))
