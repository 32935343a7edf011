"""A Kafka client of another language, in a process of its own, with the face of `clients`.

The process reads one JSON object a line, `{"call": …}` with arguments by name, and answers each
with one line, `{"result": …}` or `{"error": …}`. Bytes travel as base64.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.clients import WAIT_SECONDS, Got, Openings, Sent

ANSWER_SECONDS = 3 * WAIT_SECONDS
PART_RECORDS = 20


class ClientError(Exception):
    """What the client in the other process complained of."""


class Driver:
    """Start it with a command, call it, close it."""

    def __init__(self, command: Sequence[str | Path], log: Path, **environment: str) -> None:
        self._log = log
        self._one_at_a_time = threading.Lock()
        with log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                env=os.environ | environment,
            )

    def call(self, call: str, **arguments: Any) -> Any:
        """Its answer; ClientError where it failed, AssertionError where none came."""
        with self._one_at_a_time:
            answer = self._answer(call, arguments)
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer.get("result")

    def _answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = threading.Timer(ANSWER_SECONDS, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps({"call": call, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"no answer to {call}: {self._log.read_text(encoding='utf-8')[-5000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


class DrivenClient:
    """The calls that are the same whatever the language. A subclass names what differs."""

    eager: tuple[str, ...]
    cooperative: tuple[str, ...]
    unknown_topic: str
    too_large: str
    long_waits: dict[str, Any]
    small_fetches: dict[str, Any]
    frequent_looks: dict[str, Any]
    small_batches: dict[str, Any]
    commits_by_itself: dict[str, Any]
    short_patience: dict[str, Any]

    sends_nothing = True
    sends_null_headers = True

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.opened = Openings()

    def reconnect(self) -> None:
        """They do so by themselves."""

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.driver.call("create", topic=topic, partitions=partitions, configs=given)

    def delete(self, topic: str) -> None:
        self.driver.call("delete", topic=topic)

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
        number = self.driver.call(
            "producer",
            topic=topic,
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            options=options,
        )
        try:
            for part in _parts(records):
                rows = [_outgoing(record) for record in part]
                self.driver.call("send", producer=number, records=rows)
        finally:
            offsets: list[int] = self.driver.call("finish", producer=number)
        return offsets

    def reader(self, topic: str, *partitions: int, offset: int = 0, **options: Any) -> DrivenReader:
        number = self.driver.call(
            "reader",
            topic=topic,
            partitions=list(partitions or (0,)),
            offset=offset,
            options=options,
        )
        return self.opened.add(DrivenReader(self, number))

    def member(
        self,
        group: str,
        topic: str,
        *,
        assignor: str | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        **options: Any,
    ) -> DrivenReader:
        number = self.driver.call(
            "member",
            group=group,
            topic=topic,
            assignor=assignor or self.eager[0],
            instance=instance,
            session_ms=session_ms,
            options=options,
        )
        return self.opened.add(DrivenReader(self, number))

    def committed_metadata(self, group: str, topic: str) -> tuple[int, str]:
        offset, metadata = self.driver.call("group_offset", group=group, topic=topic, partition=0)
        return offset, metadata

    def close(self) -> None:
        self.driver.close()


class DrivenReader:
    def __init__(self, client: DrivenClient, number: int) -> None:
        self._client = client
        self._number = number

    def _call(self, call: str, **arguments: Any) -> Any:
        return self._client.driver.call(call, reader=self._number, **arguments)

    def poll(self, seconds: float = 0.1) -> list[Got]:
        return [_incoming(row) for row in self._call("poll", wait_ms=int(seconds * 1000))]

    def assigned(self) -> set[int]:
        return set(self._call("assigned"))

    def seek(self, partition: int, offset: int) -> None:
        self._call("seek", partition=partition, offset=offset)

    def pause(self, *partitions: int) -> None:
        self._call("pause", partitions=list(partitions))

    def resume(self, *partitions: int) -> None:
        self._call("resume", partitions=list(partitions))

    def position(self, partition: int) -> int:
        found: int = self._call("position", partition=partition)
        return found

    def commit(self) -> None:
        self._call("commit")

    def commit_async(self) -> None:
        self._call("commit_async")

    def commit_offset(self, partition: int, offset: int, metadata: str) -> None:
        self._call("commit_offset", partition=partition, offset=offset, metadata=metadata)

    def committed(self, partition: int) -> tuple[int, str] | None:
        found = self._call("committed", partition=partition)
        return None if found is None else (found[0], found[1])

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        found: int | None = self._call("offset_at", partition=partition, timestamp_ms=timestamp_ms)
        return found

    def bounds(self, partition: int) -> tuple[int, int]:
        first, end = self._call("bounds", partition=partition)
        return first, end

    def close(self) -> None:
        if self._client.opened.closing(self):
            self._call("close")


def _parts(records: Iterable[Sent]) -> Iterator[Sequence[Sent]]:
    """What is there already at once, the rest little by little as it comes."""
    if isinstance(records, Sequence):
        yield records
        return
    coming = iter(records)
    while part := list(itertools.islice(coming, PART_RECORDS)):
        yield part


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _outgoing(record: Sent) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _incoming(row: dict[str, Any]) -> Got:
    return Got(
        row["partition"],
        row["offset"],
        _data(row["key"]),
        _data(row["value"]),
        tuple((name, _data(value)) for name, value in row["headers"]),
        row["timestamp_ms"],
        row["log_append_time"],
    )
