"""A rolling restart of three brokers under load: no application notices it, and no record does."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance.aiokafka_client import AioKafkaClient
from conformance.clients import Client, Got, Reader, Sent, check_same, fresh, take
from conformance.confluent_client import ConfluentClient
from conformance.driver import PART_RECORDS
from conformance.java_client import start_java_client
from conformance.kafkajs_client import start_kafkajs_client
from support.clusters import Brokers, wait_for

pytestmark = pytest.mark.slow

PARTITIONS = 6
PAUSE_SECONDS = 0.1
SETTLE_SECONDS = 60
# A member that is silent for longer is dropped, which its application notices: not the point here.
SESSION_MS = 45_000
CLIENTS: dict[str, Callable[[str, Path], Client]] = {
    "librdkafka": lambda bootstrap, _: ConfluentClient(bootstrap),
    "aiokafka": lambda bootstrap, _: AioKafkaClient(bootstrap),
    "kafkajs": start_kafkajs_client,
    "java": start_java_client,
}


class Application:
    """An idempotent producer of one client, and the only member of a group that reads it."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self.topic, self.group = fresh(f"rolled-{name}"), fresh(f"rolling-{name}")
        self.sent: list[Sent] = []
        self.offsets: list[int] = []
        self.seen: dict[int, list[Got]] = {number: [] for number in range(PARTITIONS)}
        self.read_again = 0
        self.producing = threading.Event()
        self.consuming = threading.Event()
        self.producing.set()
        self.consuming.set()

    def produce(self) -> None:
        self.offsets = self.client.produce(self.topic, self._records(), idempotent=True)

    def _records(self) -> Iterator[Sent]:
        """Some for one partition, then some for the next: see clients.md on KafkaJS."""
        for part in itertools.count():
            if not self.producing.is_set():
                return
            for number in range(part * PART_RECORDS, (part + 1) * PART_RECORDS):
                record = Sent(b"k", b"value %d" % number, partition=part % PARTITIONS)
                self.sent.append(record)
                yield record
            time.sleep(PAUSE_SECONDS)

    def consume(self) -> None:
        member = self.client.member(
            self.group, self.topic, assignor=self.client.eager[0], session_ms=SESSION_MS
        )
        try:
            while self.consuming.is_set():
                got = member.poll(0.1)
                for record in got:
                    self._see(record)
                if got:
                    member.commit()
        finally:
            member.close()

    def _see(self, record: Got) -> None:
        """Nothing is left out, and nothing that was read before changes."""
        seen = self.seen[record.partition]
        assert record.offset <= len(seen), f"{self.name}: {record.offset} after {len(seen) - 1}"
        if record.offset < len(seen):
            assert seen[record.offset] == record, self.name
            self.read_again += 1
        else:
            seen.append(record)

    @property
    def seen_count(self) -> int:
        return sum(len(records) for records in self.seen.values())

    def check(self) -> None:
        """Every record was acknowledged, is in the log once, and came to the member in order."""
        counts = Counter(record.partition for record in self.sent)
        expected = Counter(offset for count in counts.values() for offset in range(count))
        assert Counter(self.offsets) == expected, self.name
        check_same(itertools.chain.from_iterable(self.seen.values()), self.sent)
        reader: Reader = self.client.reader(self.topic, *range(PARTITIONS))
        check_same(take(reader, len(self.sent)), self.sent)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with Brokers(
        tmp_path,
        tmp_path / "bucket",
        cluster_rebalance_delay_ms=300,
        group_initial_rebalance_delay_ms=100,
        store_folder_fsync=False,
    ) as running:
        yield running


def start_applications(bootstrap: str, folder: Path) -> Iterator[Application]:
    for name, start in CLIENTS.items():
        application = Application(name, start(bootstrap, folder / f"{name}.log"))
        application.client.create(application.topic, partitions=PARTITIONS)
        yield application


def restart(brokers: Brokers, node: int, admin: ConfluentClient) -> None:
    """Stop a broker and start it again, and wait until it leads its share."""
    brokers.stop(node)
    time.sleep(0.5)  # clients work with the others meanwhile
    brokers.start(node)

    def leads() -> bool:
        topics = admin.admin.list_topics(timeout=10).topics.values()
        leaders = [row.leader for topic in topics for row in topic.partitions.values()]
        return leaders.count(node) > len(leaders) / 4

    wait_for(f"broker {node} leads its share again", leads)


def test_four_clients_and_a_rolling_restart(brokers: Brokers, tmp_path: Path) -> None:
    bootstrap = brokers.running[1].bootstrap
    applications = list(start_applications(bootstrap, tmp_path))
    admin = ConfluentClient(bootstrap)
    with ThreadPoolExecutor(2 * len(applications)) as threads:
        producers = [threads.submit(each.produce) for each in applications]
        consumers = [threads.submit(each.consume) for each in applications]
        try:
            working = producers + consumers
            wait_for("all consume", lambda: _all_progress(working, applications, 60))
            for node in brokers.node_ids:
                counts = {each.name: each.seen_count for each in applications}
                restart(brokers, node, admin)
                wait_for(
                    "all go on",
                    lambda counts=counts: _all_progress(working, applications, 60, counts),
                )
        finally:
            print({each.name: (len(each.sent), each.seen_count) for each in applications})
            for each in applications:
                each.producing.clear()
            _finish(producers, applications)
            for each in applications:
                each.consuming.clear()
    for future in producers + consumers:
        future.result()
    print({each.name: (len(each.sent), each.read_again) for each in applications})
    for each in applications:
        each.check()
        each.client.opened.close()
        each.client.close()
    brokers.stop_all()
    assert "Traceback" not in brokers.log


def _all_progress(
    working: list[Future[None]],
    applications: list[Application],
    count: int,
    since: dict[str, int] | None = None,
) -> bool:
    """Whether all have read so many more records. Raises what one of them failed with."""
    for future in working:
        if future.done():
            future.result()
    before = since or {}
    return all(each.seen_count >= before.get(each.name, 0) + count for each in applications)


def _finish(producers: list[Future[None]], applications: list[Application]) -> None:
    """Wait until producers have all acknowledgements and consumers all records, or for long."""
    ends_at = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < ends_at:
        time.sleep(0.05)
        if all(each.done() for each in producers) and all(
            each.seen_count >= len(each.sent) for each in applications
        ):
            return
