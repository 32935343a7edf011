"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.clients import WAIT_SECONDS, Got, Openings, Sent, fresh


class ConfluentClient:
    """Options have dots in their names: give them with _."""

    eager = ("range", "roundrobin")
    cooperative = ("cooperative-sticky",)
    sends_nothing = True
    sends_null_headers = True
    unknown_topic = "UNKNOWN_TOPIC_OR_PART"
    too_large = "MSG_SIZE_TOO_LARGE"
    long_waits = {"fetch.wait.max.ms": 20_000, "socket.timeout.ms": 60_000}  # noqa: RUF012
    small_fetches = {  # noqa: RUF012
        "fetch.message.max.bytes": 1_000,
        "fetch.max.bytes": 1_000,
        "message.max.bytes": 1_000,
    }
    frequent_looks = {  # noqa: RUF012
        "topic.metadata.refresh.interval.ms": 500,
        "metadata.max.age.ms": 500,
    }
    small_batches = {"batch.size": 4_000}  # noqa: RUF012
    commits_by_itself = {"enable.auto.commit": True}  # noqa: RUF012
    short_patience = {  # noqa: RUF012
        "message.timeout.ms": 1_000,
        "topic.metadata.propagation.max.ms": 100,
    }

    def __init__(self, bootstrap: str) -> None:
        self.opened = Openings()
        self._given = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        # librdkafka 2.11 begins anew when its last broker goes away, and may then leave an admin
        # request for ever with the coordinator that it has let go of. Off, it connects again.
        self.admin = AdminClient(self._given | {"metadata.recovery.strategy": "none"})

    def reconnect(self) -> None:
        """It does so by itself."""

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(topic, num_partitions=partitions, config=given)
        self.admin.create_topics([new])[topic].result(WAIT_SECONDS)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WAIT_SECONDS)

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        **options: Any,
    ) -> list[int]:
        producer = Producer(
            self._given
            | {
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.timeout.ms": 20_000,
                **_dotted(options),
            }
        )
        told: list[tuple[KafkaError | None, Message]] = []
        for record in records:
            about = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: told.append((error, message)),
                **about,
            )
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0
        for error, _ in told:
            if error is not None:
                raise KafkaException(error)
        return [message.offset() for _, message in told]

    def reader(
        self, topic: str, *partitions: int, offset: int = 0, **options: Any
    ) -> ConfluentReader:
        group = options.pop("group_id", None) or fresh("unused-group")
        consumer = self._consumer(group, **options)
        places = [TopicPartition(topic, number, offset) for number in partitions or (0,)]
        consumer.assign(places)
        return self.opened.add(ConfluentReader(consumer, topic, group, self.opened))

    def member(
        self,
        group: str,
        topic: str,
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **options: Any,
    ) -> ConfluentReader:
        about: dict[str, Any] = {} if instance is None else {"group.instance.id": instance}
        consumer = self._consumer(
            group,
            **{
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": 200,
                **about,
                **options,
            },
        )
        consumer.subscribe([topic])
        return self.opened.add(ConfluentReader(consumer, topic, group, self.opened))

    def _consumer(self, group: str, **options: Any) -> Consumer:
        return Consumer(
            self._given
            | {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 200,
                "fetch.error.backoff.ms": 50,
                **_dotted(options),
            }
        )

    def committed_metadata(self, group: str, topic: str) -> tuple[int, str]:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        answer = self.admin.list_consumer_group_offsets([asked])[group].result(WAIT_SECONDS)
        place = answer.topic_partitions[0]
        return place.offset, place.metadata

    def close(self) -> None:
        """Nothing is left open: librdkafka ends with its objects."""


def _dotted(options: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in options.items()}


class ConfluentReader:
    def __init__(self, consumer: Consumer, topic: str, group: str, opened: Openings) -> None:
        self.consumer = consumer
        self.topic, self.group = topic, group
        self._opened = opened

    def poll(self, seconds: float = 0.1) -> list[Got]:
        got = []
        for message in self.consumer.consume(1_000, seconds):
            if message.error() is not None:
                raise KafkaException(message.error())
            got.append(_got(message))
        return got

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def seek(self, partition: int, offset: int) -> None:
        # The client refuses this until it has begun to fetch the partition.
        ends_at = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return self.consumer.seek(TopicPartition(self.topic, partition, offset))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > ends_at:
                    raise
                time.sleep(0.02)

    def pause(self, *partitions: int) -> None:
        self.consumer.pause([self._at(number) for number in partitions])

    def resume(self, *partitions: int) -> None:
        self.consumer.resume([self._at(number) for number in partitions])

    def position(self, partition: int) -> int:
        found: int = self.consumer.position([self._at(partition)])[0].offset
        return found

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def commit_async(self) -> None:
        self.consumer.commit(asynchronous=True)

    def commit_offset(self, partition: int, offset: int, metadata: str) -> None:
        place = TopicPartition(self.topic, partition, offset, metadata)
        self.consumer.commit(offsets=[place], asynchronous=False)

    def committed(self, partition: int) -> tuple[int, str] | None:
        found = self.consumer.committed([self._at(partition)], WAIT_SECONDS)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        return None if found.offset == OFFSET_INVALID else (found.offset, found.metadata or "")

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        asked = TopicPartition(self.topic, partition, timestamp_ms)
        offset = self.consumer.offsets_for_times([asked], WAIT_SECONDS)[0].offset
        return None if offset < 0 else offset

    def bounds(self, partition: int) -> tuple[int, int]:
        found: tuple[int, int] = self.consumer.get_watermark_offsets(
            self._at(partition), WAIT_SECONDS
        )
        return found

    def close(self) -> None:
        if self._opened.closing(self):
            self.consumer.close()

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


def _got(message: Message) -> Got:
    kind, timestamp_ms = message.timestamp()
    return Got(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )
