"""A real broker under load, with maintenance in a loop beside it and readers from the start.

Producers and consumers are librdkafka's, over the wire. Merge and expire go over the bucket, as
`neve maintain` does, and so does a scan, by the broker-less reader or by Spark. Every record that
anybody reads must be the one that was acknowledged at that offset, and an offset may be passed over
only where retention has moved the log's start beyond it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.maintain.jobs import Job, do_here, plan_units, settings_given
from neve.bucket.model import PartitionsFailedError
from neve.bucket.verify import Options, Report, verify
from neve.errors import LostRangeError
from neve.settings import Settings, load
from neve.store.url import connect
from support.brokers import RunningBroker, start_broker

TOPIC, PARTITIONS = "orders", 3
SEGMENT_BYTES = 48 * 1024
TARGET_BYTES = 400 * 1024
RETENTION_BYTES = 600_000
RECORDS_PER_SECOND = 3_000
VALUE_BYTES = 200
TURN_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
LAST_SCANS_MAX = 10
Scanned: TypeAlias = dict[int, list[tuple[int, bytes | None]]]
SETTINGS: Settings = load(flags={"store.folder.fsync": "false"})


class WrongReadError(AssertionError):
    """A reader saw another record than the acknowledged one, or missed one."""


@dataclass
class MaintainLoop:
    """One run. `counts` says what happened in it."""

    folder: Path
    seconds: float
    least: Counter[str] = field(default_factory=Counter)
    spark_scan: Callable[[str, str], Scanned] | None = None
    retention_bytes: int = RETENTION_BYTES
    patience_seconds: float = PATIENCE_SECONDS
    truth: list[dict[int, bytes]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])
    counts: Counter[str] = field(default_factory=Counter)
    running: bool = True
    failure: BaseException | None = None

    @property
    def url(self) -> str:
        return str(self.folder / "bucket")

    def run(self) -> Report:
        broker = start_broker(
            self.url,
            self.folder / "broker.log",
            store_folder_fsync=False,
            segment_bytes=SEGMENT_BYTES,
            segment_ms=2_000,
            tail_cache_bytes=1_000_000,
            maintenance_gc_interval_ms=1_000,
            manifest_checkpoint_numbers=8,
        )
        try:
            runtime.run(self._play(broker))
            assert broker.stop() == 0
            return runtime.run(self._verified())
        finally:
            if broker.process.poll() is None:
                broker.kill()

    async def _play(self, broker: RunningBroker) -> None:
        await runtime.offload(self._make_topic, broker)
        tasks = runtime.Tasks(on_failure=self._failed)
        tasks.start(self._produce(broker))
        for work in (self._merge, self._merge, self._expire, self._scan):
            tasks.start(self._again(work))
        for number in range(2):
            tasks.start(self._again(lambda number=number: self._consume(broker, number)))
        ends_at = runtime.monotonic() + self.seconds
        while runtime.monotonic() < ends_at + self._extra_seconds() and self.failure is None:
            await runtime.sleep(0.2)
        self.running = False
        await tasks.join()
        if self.failure is not None:
            raise self.failure
        await self._expire()
        await self._merge()
        await self._scan_whole()
        await self._consume(broker, 9)

    def _extra_seconds(self) -> float:
        """A slow machine gets more time until everything has happened often enough."""
        short = any(self.counts[what] < count for what, count in self.least.items())
        return self.patience_seconds if short else 0.0

    def _failed(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        self.running = False

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        while self.running:
            await work()
            await runtime.sleep(TURN_SECONDS)

    def _make_topic(self, broker: RunningBroker) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        configs = {"retention.bytes": str(self.retention_bytes), "retention.ms": "-1"}
        topic = NewTopic(TOPIC, PARTITIONS, 1, config=configs)
        admin.create_topics([topic])[TOPIC].result(60)

    # -- clients -------------------------------------------------------------------------------

    async def _produce(self, broker: RunningBroker) -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 10, "log_level": 3}
        )
        began, sent = runtime.monotonic(), 0
        while self.running:
            due = int((runtime.monotonic() - began) * RECORDS_PER_SECOND)
            for number in range(sent, min(due, sent + 1_000)):
                self._send(producer, number)
                sent = number + 1
            await runtime.offload(producer.poll, 0.02)
        left = await runtime.offload(producer.flush, 60)
        assert left == 0, f"{left} records were not acknowledged"

    def _send(self, producer: Producer, number: int) -> None:
        partition = number % PARTITIONS
        value = b"%d:" % number + b"v" * VALUE_BYTES

        def told(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self._failed(AssertionError(f"record {number} was refused: {error}"))
                return
            self.truth[partition][message.offset()] = value
            self.counts["produced"] += 1

        producer.produce(TOPIC, value, partition=partition, on_delivery=told)

    async def _consume(self, broker: RunningBroker, number: int) -> None:
        """Read every partition from its start to where it ends now."""
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": f"reader-{number}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 3,
            }
        )
        try:
            await runtime.offload(self._consume_all, consumer)
        finally:
            await runtime.offload(consumer.close)
        self.counts["consumed"] += 1

    def _consume_all(self, consumer: Consumer) -> None:
        due: dict[int, int] = {}
        ends: dict[int, int] = {}
        for partition in range(PARTITIONS):
            start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 60)
            due[partition], ends[partition] = start, end
        consumer.assign([TopicPartition(TOPIC, at, start) for at, start in due.items()])
        while any(due[at] < ends[at] for at in due):
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                if offset != due[partition]:
                    place = TopicPartition(TOPIC, partition)
                    start, _ = consumer.get_watermark_offsets(place, 60)
                    if not due[partition] < offset <= start:
                        raise WrongReadError(f"{partition}@{offset} where {due[partition]} is due")
                self._check(partition, offset, message.value())
                due[partition] = offset + 1

    def _check(self, partition: int, offset: int, value: bytes | None) -> None:
        self.counts["read"] += 1
        acknowledged = self.truth[partition].get(offset, value)
        if value != acknowledged:
            raise WrongReadError(f"{partition}@{offset}: {value!r}, not {acknowledged!r}")

    # -- over the bucket -----------------------------------------------------------------------

    async def _job(self, kind: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        stacked = connect(self.url, SETTINGS.store)
        try:
            given = settings_given(SETTINGS)
            job = Job(kind, self.url, settings=given, options=tuple(options.items()))
            outcomes = await do_here(stacked.store, job, await plan_units(stacked.store, job))
        finally:
            await stacked.close()
        for outcome in outcomes:
            assert outcome.ok, (kind, outcome.error, outcome.result)
        return [outcome.result for outcome in outcomes]

    async def _merge(self) -> None:
        for result in await self._job("merge", {"target_bytes": TARGET_BYTES}):
            self.counts["merged"] += result["merged"]
            self.counts["lost races"] += result["lost_races"]

    async def _expire(self) -> None:
        for result in await self._job("expire", {}):
            self.counts["expired"] += result["segments"]

    async def _scan(self) -> None:
        """Read all of it, and hold it against where each partition began and ended before."""
        async with await AsyncBucket.connect(self.url, settings=SETTINGS) as bucket:
            before = await self._bounds(bucket)
            try:
                found = await self._rows(bucket)
            except (LostRangeError, PartitionsFailedError) as error:
                if not _is_overtaken(error):
                    raise
                self.counts["overtaken"] += 1
                return
            after = await self._bounds(bucket)
        whole = [self.check_scan(at, found.get(at, []), before, after) for at in before]
        self.counts["scanned"] += 1
        self.counts["scanned whole"] += all(whole)

    async def _scan_whole(self) -> None:
        """Scan until one has passed nothing over: with no load, retention soon comes to rest."""
        before = self.counts["scanned whole"]
        for _ in range(LAST_SCANS_MAX):
            await self._scan()
            if self.counts["scanned whole"] > before:
                return
        raise WrongReadError(f"none of {LAST_SCANS_MAX} scans without load was whole")

    async def _bounds(self, bucket: AsyncBucket) -> dict[int, tuple[int, int]]:
        return {at: await bucket.offsets(TOPIC, at) for at in range(PARTITIONS)}

    async def _rows(self, bucket: AsyncBucket) -> Scanned:
        """Each partition's rows: Spark's by offset, a reader's as they come."""
        if self.spark_scan is not None:
            rows = await runtime.offload(self.spark_scan, self.url, TOPIC)
            return {partition: sorted(each) for partition, each in rows.items()}
        found: Scanned = {}
        async for row in bucket.read(TOPIC):
            found.setdefault(row.partition, []).append((row.offset, row.value))
        return found

    def check_scan(
        self,
        partition: int,
        rows: list[tuple[int, bytes | None]],
        before: dict[int, tuple[int, int]],
        after: dict[int, tuple[int, int]],
    ) -> bool:
        """Whether nothing was passed over; what was must lie below the start as it is now."""
        (first, end), (start, _) = before[partition], after[partition]
        due, whole = first, True
        for offset, value in rows:
            if offset != due:
                if not due < offset <= start:
                    raise WrongReadError(f"scan: {partition}@{offset}, {due} was due")
                whole = False
            self._check(partition, offset, value)
            due = offset + 1
        if due < end:
            if start < end:
                raise WrongReadError(f"scan: {partition} ended at {due}, not {end}")
            whole = False
        return whole

    async def _verified(self) -> Report:
        stacked = connect(self.url, SETTINGS.store)
        try:
            return await verify(stacked.store, Options(probe=False, settle_seconds=0))
        finally:
            await stacked.close()


def _is_overtaken(error: LostRangeError | PartitionsFailedError) -> bool:
    """Whether retention has passed what was read, in one partition or in several: it says so."""
    failures = error.failures.values() if isinstance(error, PartitionsFailedError) else [error]
    return all(isinstance(each, LostRangeError) for each in failures)
