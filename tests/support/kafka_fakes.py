"""A cluster of plain objects for the admin commands: what librdkafka's mock cluster cannot do.

It has only what the commands use. Results are real futures of confluent-kafka's own classes.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Node,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    ConfigEntry,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
    TopicDescription,
)

from neve.cli.connection import BrokerFlags, Connection

NODE = Node(1, "h", 9092)


def done(value: Any = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(code: int, reason: str | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code, reason)))
    return future


class FakeCluster(Connection):
    """Topics with (low, high) by partition, configs, and groups; also the clients of them."""

    def __init__(self, topics: dict[str, dict[int, tuple[int, int]]] | None = None) -> None:
        super().__init__({"bootstrap.servers": "h:9092"}, 1.0)
        self.held = dict(topics or {})
        self.configs: dict[str, dict[str, tuple[str, ConfigSource]]] = {}
        self.groups: dict[str, ConsumerGroupDescription] = {}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.times: dict[tuple[str, int, int], int] = {}
        self.calls: list[tuple[Any, ...]] = []
        self._admin = self._lookup = self

    def flags(self) -> BrokerFlags:
        cluster = self

        class Flags(BrokerFlags):
            def connect(self) -> Connection:
                return cluster

        return Flags()

    def close(self) -> None:
        pass

    # --- metadata

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        names = self.held if topic is None else [topic]
        return SimpleNamespace(topics={name: self._metadata(name) for name in names}, brokers={})

    def _metadata(self, name: str) -> Any:
        if name not in self.held:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return SimpleNamespace(topic=name, error=error, partitions={})
        rows = {number: SimpleNamespace(replicas=[1]) for number in self.held[name]}
        return SimpleNamespace(topic=name, error=None, partitions=rows)

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {place: self._offset(place, spec) for place, spec in asked.items()}

    def _offset(self, place: TopicPartition, spec: Any) -> Future[Any]:
        low, high = self.held[place.topic][place.partition]
        kind = spec._value
        if kind in (-1, -2):
            offset = high if kind == -1 else low
        else:
            offset = self.times.get((place.topic, place.partition, kind), -1)
        return done(SimpleNamespace(offset=offset))

    # --- topics

    def create_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        answers = {}
        for each in topics:
            self.calls.append(
                ("create", each.topic, each.num_partitions, each.replication_factor, each.config)
            )
            taken = each.topic in self.held
            answers[each.topic] = failed(KafkaError.TOPIC_ALREADY_EXISTS) if taken else done()
            self.held.setdefault(each.topic, {0: (0, 0)})
        return answers

    def delete_topics(self, names: list[str], **_: Any) -> dict[str, Future[Any]]:
        self.calls.append(("delete", *names))
        unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
        return {name: done() if self.held.pop(name, None) else failed(unknown) for name in names}

    def create_partitions(self, wanted: Any, **_: Any) -> dict[str, Future[Any]]:
        self.calls.append(("partitions", wanted[0].topic, wanted[0].new_total_count))
        rows = self.held[wanted[0].topic]
        rows |= dict.fromkeys(range(len(rows), wanted[0].new_total_count), (0, 0))
        return {wanted[0].topic: done()}

    def incremental_alter_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        for each in resources[0].incremental_configs:
            self.calls.append(("config", each.name, each.value, each.incremental_operation.name))
        refused = any(each.name == "nonsense" for each in resources[0].incremental_configs)
        answer = failed(KafkaError.INVALID_CONFIG, "no such config") if refused else done()
        return {resources[0]: answer}

    def describe_topics(self, collection: Any, **_: Any) -> dict[str, Future[Any]]:
        (name,) = collection.topic_names
        partitions = [TopicPartitionInfo(n, NODE, [NODE], [NODE]) for n in self.held[name]]
        return {name: done(TopicDescription(name, "an+id/", False, partitions))}

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        rows = self.configs.get(resources[0].name, {})
        entries = {
            name: ConfigEntry(
                name, value, source=source, is_default=source == ConfigSource.DEFAULT_CONFIG
            )
            for name, (value, source) in rows.items()
        }
        return {resources[0]: done(entries)}

    # --- groups

    def add_group(self, name: str, state: ConsumerGroupState, *members: MemberDescription) -> None:
        self.groups[name] = ConsumerGroupDescription(
            name, False, list(members), "range", state, NODE
        )

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        rows = [
            ConsumerGroupListing(name, False, group.state) for name, group in self.groups.items()
        ]
        return done(ListConsumerGroupsResult(rows, []))

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, Future[Any]]:
        unknown = KafkaError.GROUP_ID_NOT_FOUND
        return {
            name: done(self.groups[name]) if name in self.groups else failed(unknown)
            for name in names
        }

    def list_consumer_group_offsets(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        name = asked[0].group_id
        rows = [TopicPartition(*place, at) for place, at in self.offsets.get(name, {}).items()]
        return {name: done(ConsumerGroupTopicPartitions(name, rows))}

    def alter_consumer_group_offsets(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        for each in asked[0].topic_partitions:
            self.calls.append(("commit", each.topic, each.partition, each.offset))
        return {asked[0].group_id: done(asked[0])}

    def delete_consumer_groups(self, names: list[str], **_: Any) -> dict[str, Future[Any]]:
        def answer(name: str) -> Future[Any]:
            if name not in self.groups:
                return failed(KafkaError.GROUP_ID_NOT_FOUND)
            busy = self.groups[name].members
            return failed(KafkaError.NON_EMPTY_GROUP) if busy else done()

        return {name: answer(name) for name in names}


def member(name: str, *places: tuple[str, int]) -> MemberDescription:
    rows = [TopicPartition(*place) for place in places]
    return MemberDescription(name, "client", "/127.0.0.1", MemberAssignment(rows), None)
