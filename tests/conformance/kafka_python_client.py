"""kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import cramjam

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how it reads its resources
    import kafka.codec
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.net.inet import KafkaNetSocket

from conformance.clients import WAIT_SECONDS, Got, Openings, Sent, as_got

if kafka.codec.snappy is None:  # it wants python-snappy, a library for C; this is the same format
    kafka.codec.snappy = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(bytes(data))),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(bytes(data))),
    )

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


__all__ = ["KafkaNetSocket", "KafkaPythonClient", "KafkaPythonReader", "TopicPartition"]


class KafkaPythonClient:
    eager = ("range", "roundrobin", "sticky")
    cooperative = ("cooperative-sticky",)
    sends_nothing = False
    sends_null_headers = False
    unknown_topic = "Failed to update metadata"
    too_large = "MessageSizeTooLarge"
    long_waits = {"fetch_max_wait_ms": 20_000}  # noqa: RUF012
    small_fetches = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 1_000}  # noqa: RUF012
    frequent_looks = {"metadata_max_age_ms": 500}  # noqa: RUF012
    small_batches = {"batch_size": 4_000}  # noqa: RUF012
    commits_by_itself = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}  # noqa: RUF012
    short_patience = {"max_block_ms": 1_000}  # noqa: RUF012

    def __init__(self, bootstrap: str) -> None:
        self.opened = Openings()
        self._given = {
            "bootstrap_servers": bootstrap,
            "metrics_enabled": False,
            "reconnect_backoff_max_ms": 200,
        }
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def reconnect(self) -> None:
        """Its admin client fails the first calls after a connection was lost."""
        self.admin.close()
        self.admin = KafkaAdminClient(bootstrap_servers=self._given["bootstrap_servers"])

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        about = {"num_partitions": partitions, "replication_factor": 1, "configs": given}
        self.admin.create_topics({topic: about})

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])

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
        producer = KafkaProducer(
            **self._given
            | {
                "compression_type": None if codec == "none" else codec,
                "acks": acks,
                "enable_idempotence": idempotent,
                "linger_ms": 5,
                "delivery_timeout_ms": 20_000,
                "request_timeout_ms": 15_000,
                **options,
            }
        )
        try:
            waiting = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(WAIT_SECONDS)
            return [each.get(WAIT_SECONDS).offset for each in waiting]
        finally:
            producer.close(WAIT_SECONDS)

    def reader(
        self, topic: str, *partitions: int, offset: int = 0, **options: Any
    ) -> KafkaPythonReader:
        consumer = self._consumer(None, **options)
        places = [TopicPartition(topic, number) for number in partitions or (0,)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, offset)
        return self.opened.add(KafkaPythonReader(consumer, topic, self.opened))

    def member(
        self,
        group: str,
        topic: str,
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **options: Any,
    ) -> KafkaPythonReader:
        consumer = self._consumer(
            group,
            **{
                "partition_assignment_strategy": [ASSIGNORS[assignor]],
                "group_instance_id": instance,
                "session_timeout_ms": session_ms,
                "heartbeat_interval_ms": 200,
                **options,
            },
        )
        consumer.subscribe([topic])
        return self.opened.add(KafkaPythonReader(consumer, topic, self.opened))

    def _consumer(self, group: str | None, **options: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **self._given
            | {
                "group_id": group,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "fetch_max_wait_ms": 200,
                **options,
            }
        )

    def committed_metadata(self, group: str, topic: str) -> tuple[int, str]:
        found = self.admin.list_group_offsets({group: None})[group][TopicPartition(topic, 0)]
        return found.offset, found.metadata

    def close(self) -> None:
        self.admin.close()


class KafkaPythonReader:
    joins_in_poll = True

    def __init__(self, consumer: KafkaConsumer, topic: str, opened: Openings) -> None:
        self.consumer = consumer
        self._topic = topic
        self._opened = opened

    def poll(self, seconds: float = 0.1) -> list[Got]:
        found = self.consumer.poll(timeout_ms=int(seconds * 1000), max_records=1_000)
        return [as_got(record) for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(self._at(partition), offset)

    def pause(self, *partitions: int) -> None:
        self.consumer.pause(*map(self._at, partitions))

    def resume(self, *partitions: int) -> None:
        self.consumer.resume(*map(self._at, partitions))

    def position(self, partition: int) -> int:
        found: int = self.consumer.position(self._at(partition))
        return found

    def commit(self) -> None:
        self.consumer.commit()

    def commit_async(self) -> None:
        told: list[Any] = []
        self.consumer.commit_async(callback=lambda *result: told.append(result))
        ends_at = time.monotonic() + WAIT_SECONDS
        while not told and time.monotonic() < ends_at:
            self.consumer.poll(10, update_offsets=False)
        assert not isinstance(told[0][1], Exception), told

    def commit_offset(self, partition: int, offset: int, metadata: str) -> None:
        self.consumer.commit({self._at(partition): OffsetAndMetadata(offset, metadata, -1)})

    def committed(self, partition: int) -> tuple[int, str] | None:
        found = self.consumer.committed(self._at(partition), metadata=True)
        return None if found is None else (found.offset, found.metadata)

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        place = self._at(partition)
        found = self.consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else found.offset

    def bounds(self, partition: int) -> tuple[int, int]:
        place = self._at(partition)
        first = self.consumer.beginning_offsets([place])[place]
        return first, self.consumer.end_offsets([place])[place]

    def close(self) -> None:
        if self._opened.closing(self):
            self.consumer.close(autocommit=False)

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)
