"""One face for several Kafka clients, so that a scenario is written once and played with each.

An adapter adds nothing to its client but names: no retry, no ordering, no filter.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

Headers = tuple[tuple[str, bytes | None], ...]
WAIT_SECONDS = 30
LOG_APPEND_TIME = 1
R = TypeVar("R", bound="Reader")
_numbers = itertools.count()


class Sent(NamedTuple):
    """A record as it is given to a client."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Got(NamedTuple):
    """A record as a client gives it back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    log_append_time: bool

    @property
    def content(self) -> tuple[int, bytes | None, bytes | None, Headers]:
        return self.partition, self.key, self.value, self.headers


class Reader(Protocol):
    """A consumer of one topic, with partitions of its own choice or as a member of a group."""

    def poll(self, seconds: float = 0.1) -> list[Got]: ...
    def assigned(self) -> set[int]: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def pause(self, *partitions: int) -> None: ...
    def resume(self, *partitions: int) -> None: ...
    def position(self, partition: int) -> int: ...
    def commit(self) -> None: ...
    def commit_async(self) -> None: ...
    def commit_offset(self, partition: int, offset: int, metadata: str) -> None: ...
    def committed(self, partition: int) -> tuple[int, str] | None: ...
    def offset_at(self, partition: int, timestamp_ms: int) -> int | None: ...
    def bounds(self, partition: int) -> tuple[int, int]: ...
    def close(self) -> None: ...


class Openings:
    """The consumers that a client has opened: what a test leaves open is closed after it."""

    def __init__(self) -> None:
        self._open: list[Reader] = []

    def add(self, reader: R) -> R:
        self._open.append(reader)
        return reader

    def closing(self, reader: Reader) -> bool:
        """Whether it is still open, and from now on is not."""
        if reader not in self._open:
            return False
        self._open.remove(reader)
        return True

    def close(self) -> None:
        for reader in list(self._open):
            reader.close()


class Client(Protocol):
    """What every client can do. `options` are the client's own settings, by its own names."""

    eager: tuple[str, ...]
    cooperative: tuple[str, ...]
    sends_nothing: bool  # a record may have neither key nor value
    sends_null_headers: bool
    unknown_topic: str
    too_large: str
    long_waits: dict[str, Any]  # a fetch waits 20 s if there is nothing
    small_fetches: dict[str, Any]  # a fetch asks for 1,000 bytes
    frequent_looks: dict[str, Any]  # metadata is never older than half a second
    small_batches: dict[str, Any]  # a producer sends a few KB at a time
    commits_by_itself: dict[str, Any]  # a member commits what it has given out
    short_patience: dict[str, Any]  # a producer gives up after a second
    opened: Openings

    def reconnect(self) -> None: ...
    def create(self, topic: str, partitions: int = 1, **configs: str) -> None: ...
    def delete(self, topic: str) -> None: ...
    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        **options: Any,
    ) -> list[int]: ...
    def reader(self, topic: str, *partitions: int, offset: int = 0, **options: Any) -> Reader: ...
    def member(
        self,
        group: str,
        topic: str,
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **options: Any,
    ) -> Reader: ...
    def committed_metadata(self, group: str, topic: str) -> tuple[int, str]: ...
    def close(self) -> None: ...


def as_got(record: Any) -> Got:
    """A record of kafka-python or aiokafka, whose records have the same fields."""
    return Got(
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp,
        record.timestamp_type == LOG_APPEND_TIME,
    )


def fresh(stem: str) -> str:
    """A name that no other test uses."""
    return f"{stem}-{next(_numbers)}"


def numbered(count: int, start: int = 0, partition: int = 0) -> list[Sent]:
    """Records that tell by their value where they belong."""
    return [
        Sent(b"k%d" % (number % 7), b"value %d" % number, partition=partition)
        for number in range(start, start + count)
    ]


def poll_all(readers: Sequence[Reader], seconds: float) -> list[Got]:
    """What all of them have, asked one after the other, or side by side where a client needs it.

    kafka-python joins a group within its poll: one that is interrupted starts the joining anew.
    """
    if len(readers) == 1 or not any(getattr(reader, "joins_in_poll", False) for reader in readers):
        return [record for reader in readers for record in reader.poll(seconds)]
    with ThreadPoolExecutor(len(readers)) as threads:
        found = list(threads.map(lambda reader: reader.poll(5 * seconds), readers))
    return [record for records in found for record in records]


def wait_until(readers: Sequence[Reader], done: Callable[[], bool], what: str) -> list[Got]:
    """Poll all in turn until it is so; what came meanwhile."""
    got: list[Got] = []
    ends_at = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < ends_at, f"not within {WAIT_SECONDS} s: {what}"
        got += poll_all(readers, 0.05)
    return got


def take(readers: Reader | Sequence[Reader], count: int) -> list[Got]:
    """Poll until so many records have come, and a little longer for those that should not."""
    among = readers if isinstance(readers, Sequence) else [readers]
    got: list[Got] = []
    ends_at = time.monotonic() + WAIT_SECONDS
    while len(got) < count:
        assert time.monotonic() < ends_at, f"{len(got)} of {count} records in {WAIT_SECONDS} s"
        got += poll_all(among, 0.05)
    return got + poll_all(among, 0.1)


def check_same(got: Iterable[Got], sent: Iterable[Sent], first_offset: int = 0) -> None:
    """Every record is there once, in order in its partition, byte for byte, at its offset."""
    by_partition: dict[int, list[Got]] = {}
    for record in got:
        by_partition.setdefault(record.partition, []).append(record)
    wanted: dict[int, list[Sent]] = {}
    for record in sent:
        wanted.setdefault(record.partition, []).append(record)
    assert {number: len(rows) for number, rows in by_partition.items()} == {
        number: len(rows) for number, rows in wanted.items()
    }
    for number, rows in wanted.items():
        offsets = [record.offset for record in by_partition[number]]
        assert offsets == list(range(first_offset, first_offset + len(rows)))
        for mine, theirs in zip(rows, by_partition[number], strict=True):
            assert theirs.content == (number, mine.key, mine.value, mine.headers)
            if mine.timestamp_ms is not None:
                assert theirs.timestamp_ms == mine.timestamp_ms
