"""aiokafka, on an event loop in a thread of its own so that it can be used like the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import for_code

from conformance.clients import WAIT_SECONDS, Got, Openings, Sent, as_got

T = TypeVar("T")
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class LoopThread:
    """An event loop that runs until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * WAIT_SECONDS)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a plain function there: the client is not made for other threads."""

        async def called() -> T:
            return function(*arguments)

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AioKafkaClient:
    eager = ("range", "roundrobin", "sticky")
    cooperative = ()
    sends_nothing = False
    sends_null_headers = True
    unknown_topic = "UnknownTopicOrPartition"
    too_large = "MessageSizeTooLarge"
    long_waits = {"fetch_max_wait_ms": 20_000}  # noqa: RUF012
    small_fetches = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 1_000}  # noqa: RUF012
    frequent_looks = {"metadata_max_age_ms": 500}  # noqa: RUF012
    small_batches = {"max_batch_size": 4_000}  # noqa: RUF012
    commits_by_itself = {"enable_auto_commit": True}  # noqa: RUF012
    short_patience = {"request_timeout_ms": 1_000}  # noqa: RUF012

    def __init__(self, bootstrap: str) -> None:
        self.opened = Openings()
        self._given = {"bootstrap_servers": bootstrap}
        self.loop = LoopThread()
        self.admin: AIOKafkaAdminClient = self.loop.run(self._start_admin())

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(**self._given)
        await admin.start()
        return admin

    def reconnect(self) -> None:
        """It does so by itself."""

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(topic, partitions, 1, topic_configs=given)
        answer = self.loop.run(self.admin.create_topics([new]))
        for _, code, *_ in answer.topic_errors:
            if code:
                raise for_code(code)

    def delete(self, topic: str) -> None:
        answer = self.loop.run(self.admin.delete_topics([topic]))
        for _, code in answer.topic_error_codes:
            if code:
                raise for_code(code)

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
        given = self._given | {
            "compression_type": None if codec == "none" else codec,
            "acks": acks,
            "enable_idempotence": idempotent,
            "linger_ms": 5,
            "request_timeout_ms": 20_000,
            **options,
        }
        return self.loop.run(_produce(given, topic, records))

    def reader(self, topic: str, *partitions: int, offset: int = 0, **options: Any) -> AioReader:
        consumer = self.loop.run(self._started(None, **options))
        places = [TopicPartition(topic, number) for number in partitions or (0,)]
        self.loop.call(consumer.assign, places)
        for place in places:
            self.loop.call(consumer.seek, place, offset)
        return self.opened.add(AioReader(self.loop, consumer, topic, self.opened))

    def member(
        self,
        group: str,
        topic: str,
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **options: Any,
    ) -> AioReader:
        given = {
            "partition_assignment_strategy": (ASSIGNORS[assignor],),
            "group_instance_id": instance,
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": 200,
            **options,
        }
        consumer = self.loop.run(self._started(group, topic, **given))
        return self.opened.add(AioReader(self.loop, consumer, topic, self.opened))

    async def _started(self, group: str | None, *topics: str, **options: Any) -> AIOKafkaConsumer:
        given = self._given | {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 200,
            **options,
        }
        consumer = AIOKafkaConsumer(*topics, **given)
        await consumer.start()
        return consumer

    def committed_metadata(self, group: str, topic: str) -> tuple[int, str]:
        found = self.loop.run(self.admin.list_consumer_group_offsets(group))
        place = found[TopicPartition(topic, 0)]
        return place.offset, place.metadata

    def close(self) -> None:
        self.loop.run(self.admin.close())
        self.loop.close()


async def _produce(given: dict[str, Any], topic: str, records: Iterable[Sent]) -> list[int]:
    producer = AIOKafkaProducer(**given)
    await producer.start()
    try:
        waiting = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            async for record in _each(records)
        ]
        answers = await asyncio.gather(*waiting)
        # With acks=0 there is nothing to tell.
        return [-1 if answer is None else answer.offset for answer in answers]
    finally:
        await producer.stop()


async def _each(records: Iterable[Sent]) -> AsyncIterator[Sent]:
    """What is there already at once, the rest as it comes, without holding up the loop."""
    if isinstance(records, Sequence):
        for record in records:
            yield record
        return
    coming = iter(records)
    while (record := await asyncio.to_thread(next, coming, None)) is not None:
        yield record


class AioReader:
    def __init__(
        self, loop: LoopThread, consumer: AIOKafkaConsumer, topic: str, opened: Openings
    ) -> None:
        self._loop = loop
        self.consumer = consumer
        self._topic = topic
        self._opened = opened

    def poll(self, seconds: float = 0.1) -> list[Got]:
        found = self._loop.run(
            self.consumer.getmany(timeout_ms=int(seconds * 1000), max_records=1_000)
        )
        return [as_got(record) for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def seek(self, partition: int, offset: int) -> None:
        self._loop.call(self.consumer.seek, self._at(partition), offset)

    def pause(self, *partitions: int) -> None:
        self._loop.call(self.consumer.pause, *map(self._at, partitions))

    def resume(self, *partitions: int) -> None:
        self._loop.call(self.consumer.resume, *map(self._at, partitions))

    def position(self, partition: int) -> int:
        return self._loop.run(self.consumer.position(self._at(partition)))

    def commit(self) -> None:
        self._loop.run(self.consumer.commit())

    commit_async = commit  # every call of this client is asynchronous

    def commit_offset(self, partition: int, offset: int, metadata: str) -> None:
        self._loop.run(self.consumer.commit({self._at(partition): (offset, metadata)}))

    def committed(self, partition: int) -> tuple[int, str] | None:
        """The offset; the client does not tell the metadata."""
        found = self._loop.run(self.consumer.committed(self._at(partition)))
        return None if found is None else (found, "")

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        place = self._at(partition)
        found = self._loop.run(self.consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else found.offset

    def bounds(self, partition: int) -> tuple[int, int]:
        place = self._at(partition)
        first = self._loop.run(self.consumer.beginning_offsets([place]))[place]
        return first, self._loop.run(self.consumer.end_offsets([place]))[place]

    def close(self) -> None:
        if self._opened.closing(self):
            self._loop.run(self.consumer.stop())

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)
