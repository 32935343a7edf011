"""The demonstration's broker, a child process, and its Kafka clients."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from neve import runtime
from neve.errors import NeveError

GROUP = "demo"
WAIT_SECONDS = 60
# Hide the clients' log lines about the broker that is killed.
QUIET = {"log_level": "0"}
# Small bounds, so that a demonstration shows what otherwise takes gigabytes.
SETTINGS = ("segment.bytes=262144", "http.listen=127.0.0.1:0", "log.level=warning")
_READY = re.compile(r"ready: kafka (\S+?),.*incarnation (\d+)")


class DemoError(NeveError):
    """The demonstration found an unexpected result, which is a bug."""


def say(line: str) -> None:
    print(f"\n* {line}\n", flush=True)


class Broker:
    """`neve serve` as a child process."""

    def __init__(
        self, folder: str, *, name: str = "A broker", settings: Sequence[str] = ()
    ) -> None:
        command = [sys.executable, "-m", "neve.cli", "serve", "--store", folder]
        command += ["--listen", "127.0.0.1:0"]
        for setting in (*SETTINGS, *settings):
            command += ["--set", setting]
        started = runtime.monotonic()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        line = _output(self._process).readline()
        found = _READY.search(line)
        if found is None:
            self._process.kill()
            raise DemoError(f"the broker did not start: {line!r}")
        self.address, incarnation = found.groups()
        say(
            f"{name} (incarnation {incarnation}) serves Kafka clients on {self.address}, "
            f"{runtime.monotonic() - started:.1f} s after its start."
        )

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """End the broker as a person does, and wait until it has stopped."""
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        _output(self._process).close()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def create(address: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(WAIT_SECONDS)


def produce(address: str, topic: str, records: Iterable[tuple[str, dict[str, Any]]]) -> int:
    """Write each key and value. Returns their number; all are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **QUIET}
    )
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for key, value in records:
        producer.produce(
            topic,
            key=key,
            value=json.dumps(value),
            headers={"source": "demo"},
            on_delivery=delivered,
        )
        producer.poll(0)
        count += 1
    left = producer.flush(WAIT_SECONDS)
    if left or failures:
        raise DemoError(f"{left + len(failures)} records were not acknowledged: {failures[:1]}")
    return count


def consume(address: str, topic: str, count: int) -> None:
    """Read as a member of a group and commit the offsets."""
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
        consumer.subscribe([topic])
        seen: set[bytes] = set()
        last: Any = None
        while len(seen) < count:
            messages = consumer.consume(count - len(seen), 1.0)
            seen |= {message.value() for message in messages if message.error() is None}
            last = messages[-1] if messages else last
            if runtime.monotonic() - started > WAIT_SECONDS:
                raise DemoError(f"the group read {len(seen)} of {count} records: this is a bug")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    say(
        f"A consumer group read {len(seen)} records and committed its offsets; the last one: "
        f"{topic}-{last.partition()} offset {last.offset()}: {last.value().decode()}"
    )
