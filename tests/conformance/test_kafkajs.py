"""KafkaJS: records, groups, and its admin client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.clients import check_same, fresh, numbered, take
from conformance.driver import ClientError
from conformance.group_scenarios import CommittingScenarios
from conformance.kafkajs_client import KafkaJsClient, start_kafkajs_client
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker

TOPIC_RESOURCE = 2


def at(partition: int, offset: int) -> dict[str, Any]:
    return {"partition": partition, "offset": str(offset)}


@pytest.fixture(scope="module")
def client(
    broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaJsClient]:
    made = start_kafkajs_client(broker.bootstrap, tmp_path_factory.mktemp("kafkajs") / "log")
    yield made
    made.close()


@pytest.fixture(params=KafkaJsClient.eager)
def assignor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRecords(RecordScenarios):
    pass


class TestGroups(CommittingScenarios):
    # KafkaJS has no static members.
    test_a_static_member_comes_back_to_what_it_had = None
    test_a_member_that_is_silent_too_long_is_dropped = None


class TestAdmin:
    def test_topics(self, client: KafkaJsClient, broker: RunningBroker) -> None:
        topic = fresh("administered")
        client.create(topic, partitions=2, retention_ms="3600000")
        assert topic in client.admin("listTopics")
        client.admin("createPartitions", topicPartitions=[{"topic": topic, "count": 3}])
        [about] = client.admin("fetchTopicMetadata", topics=[topic])["topics"]
        assert sorted(row["partitionId"] for row in about["partitions"]) == [0, 1, 2]
        assert {row["leader"] for row in about["partitions"]} <= broker.node_ids
        client.delete(topic)
        assert topic not in client.admin("listTopics")
        client.create(topic)
        with pytest.raises(ClientError, match="already"):
            client.create(topic)

    def test_the_cluster(self, client: KafkaJsClient, broker: RunningBroker) -> None:
        found = client.admin("describeCluster")
        assert sorted(found["brokers"], key=lambda row: row["nodeId"]) == [
            {"nodeId": node.node_id, "host": node.host, "port": node.port} for node in broker.nodes
        ]
        assert found["controller"] in broker.node_ids
        assert found["clusterId"]

    def test_configs(self, client: KafkaJsClient) -> None:
        topic = fresh("configured")
        client.create(topic, retention_ms="3600000")

        def values() -> dict[str, str]:
            resources = [{"type": TOPIC_RESOURCE, "name": topic}]
            [found] = client.admin("describeConfigs", resources=resources)["resources"]
            return {row["configName"]: row["configValue"] for row in found["configEntries"]}

        assert values()["retention.ms"] == "3600000"
        entries = [{"name": "retention.bytes", "value": "1000000"}]
        changed = {"type": TOPIC_RESOURCE, "name": topic, "configEntries": entries}
        client.admin("alterConfigs", resources=[changed])
        assert values()["retention.bytes"] == "1000000"
        assert values()["retention.ms"] == "604800000"

    def test_offsets_and_records(self, client: KafkaJsClient) -> None:
        topic = fresh("shortened")
        client.create(topic)
        client.produce(topic, numbered(20))
        client.admin("fetchTopicOffsets", topic)  # KafkaJS deletes only where it knows the leader
        client.admin("deleteTopicRecords", topic=topic, partitions=[at(0, 7)])
        reader = client.reader(topic, offset=7)
        assert reader.bounds(0) == (7, 20)
        check_same(take(reader, 13), numbered(13, start=7), first_offset=7)
        reader.close()

    def test_groups(self, client: KafkaJsClient) -> None:
        topic, group = fresh("grouped"), fresh("administered-group")
        client.create(topic)
        client.produce(topic, numbered(20))
        member = client.member(group, topic)
        take(member, 20)
        member.commit()
        assert group in {row["groupId"] for row in client.admin("listGroups")["groups"]}
        [about] = client.admin("describeGroups", [group])["groups"]
        assert (about["state"], about["protocol"]) == ("Stable", "RoundRobinAssigner")
        assert len(about["members"]) == 1
        with pytest.raises(ClientError, match="NON_EMPTY_GROUP"):
            client.admin("deleteGroups", [group])
        member.close()
        [about] = client.admin("describeGroups", [group])["groups"]
        assert about["state"] == "Empty"
        client.admin("setOffsets", groupId=group, topic=topic, partitions=[at(0, 15)])
        member = client.member(group, topic)
        check_same(take(member, 5), numbered(5, start=15), first_offset=15)
        member.close()
        client.admin("deleteGroups", [group])
        assert group not in {row["groupId"] for row in client.admin("listGroups")["groups"]}
