"""`neve demo`: a broker, ordinary Kafka clients, and what lands in the bucket, in some seconds.

A broker starts on a folder that is thrown away. A Kafka producer writes to it, a consumer group
reads and commits. The broker is killed, a new one takes over, and the group goes on where it was.
At the end the bucket is read without any broker.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import IO, Any

from neve import runtime
from neve.bucket.reader import AsyncBucket
from neve.cli import listing
from neve.errors import NeveError

TOPIC, PARTITIONS, GROUP = "orders", 3, "demo"
RECORDS, MORE_RECORDS = 20_000, 5_000
WAIT_SECONDS = 60
# The clients' own lines about brokers that come and go would only puzzle.
QUIET = {"log_level": "0"}
# Small bounds, so that a demonstration shows what otherwise takes gigabytes.
SETTINGS = ("segment.bytes=262144", "http.listen=127.0.0.1:0", "log.level=warning")
_READY = re.compile(r"ready: kafka (\S+?),.*incarnation (\d+)")


class DemoError(NeveError):
    """Something was not as the demonstration says: a bug."""


def demo() -> int:
    """Show what Neve does: serve Kafka clients, crash, recover, and read without a broker."""
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as folder:
        _say(f"A folder is the whole installation: {folder}")
        with _Broker(folder) as broker:
            _create(broker.address)
            _produce(broker.address, range(RECORDS))
            _consume(broker.address, RECORDS // 2)
            broker.kill()
        _say("The broker is killed, without a chance to say goodbye. Another one starts:")
        with _Broker(folder) as broker:
            _produce(broker.address, range(RECORDS, RECORDS + MORE_RECORDS))
            _consume(broker.address, RECORDS + MORE_RECORDS - RECORDS // 2)
        _say("Now without any broker, as `neve storage ls` and `neve.open` read the folder:")
        runtime.run(_read(folder, RECORDS + MORE_RECORDS))
    _say("Every acknowledged record was there once, and there never was anything but the folder.")
    return 0


class _Broker:
    """`neve serve` as a process of its own."""

    def __init__(self, folder: str) -> None:
        command = [sys.executable, "-m", "neve.cli", "serve", "--store", folder]
        command += ["--listen", "127.0.0.1:0"]
        for setting in SETTINGS:
            command += ["--set", setting]
        started = runtime.monotonic()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        line = _output(self._process).readline()
        found = _READY.search(line)
        if found is None:
            self._process.kill()
            raise DemoError(f"the broker did not start: {line!r}")
        self.address, incarnation = found.groups()
        _say(
            f"A broker (incarnation {incarnation}) serves Kafka clients on {self.address}, "
            f"{runtime.monotonic() - started:.1f} s after its start."
        )

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> _Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        _output(self._process).close()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _create(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(WAIT_SECONDS)


def _produce(address: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **QUIET}
    )
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    started = runtime.monotonic()
    for number in numbers:
        producer.produce(
            TOPIC,
            key=f"customer {number % 97}",
            value=f"order {number}",
            headers={"source": "demo"},
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    if left or failures:
        raise DemoError(f"{left + len(failures)} records were not acknowledged: {failures[:1]}")
    _say(
        f"An idempotent Kafka producer wrote {len(numbers)} records with acks=all in "
        f"{runtime.monotonic() - started:.2f} s."
    )


def _consume(address: str, count: int) -> None:
    """Read as a member of a group, and commit what was read."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    started = runtime.monotonic()
    try:
        consumer.subscribe([TOPIC])
        seen: set[bytes] = set()
        last: Any = None
        while len(seen) < count:
            messages = consumer.consume(count - len(seen), 1.0)
            seen |= {message.value() for message in messages if message.error() is None}
            last = messages[-1] if messages else last
            if runtime.monotonic() - started > WAIT_SECONDS:
                raise DemoError(f"the group got {len(seen)} of {count} records: this is a bug")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    _say(
        f"A consumer group read {len(seen)} records and committed its offsets; the last one: "
        f"{TOPIC}-{last.partition()} offset {last.offset()}: {last.value().decode()!r}"
    )


async def _read(folder: str, count: int) -> None:
    async with await AsyncBucket.connect(folder) as bucket:
        listing.print_info(folder, await bucket.describe())
        values = [record.value async for record in bucket.read(TOPIC)]
        rows = size = 0
        async for batch in bucket.arrow(TOPIC):
            rows += batch.num_rows
            size += batch.nbytes
    _check(values, count)
    print(f"\n  {len(values)} records; the same as Arrow: {rows} rows, {size} bytes of columns")


def _check(values: Iterable[bytes | None], count: int) -> None:
    found = sorted((value or b"").decode() for value in values)
    if found != sorted(f"order {number}" for number in range(count)):
        raise DemoError("the bucket does not hold every acknowledged record once: this is a bug")


def _say(line: str) -> None:
    print(f"\n* {line}\n", flush=True)
