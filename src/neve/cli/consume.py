"""Implementation of `neve topic consume`: records to standard output, in order per partition.

Without a group, each partition is read over the requested range, by default up to the end that the
log has at the start of the command; `--follow` continues. A count also ends the command. With a
group, `consume_member` decides which partitions are read.

If the broker sends nothing for `--timeout` seconds, the command fails, or with `--follow` prints a
line and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neve import runtime
from neve.bucket.model import Record
from neve.cli import output, ranges
from neve.cli.connection import BrokerError, Connection, explained, unknown_partition
from neve.cli.offsets import BeforeEnd, Span
from neve.cli.output import UsageError
from neve.cli.ranges import Range
from neve.cli.record_format import Renderer

BATCH_RECORDS = 1000
POLL_SECONDS = 0.2
"""The longest wait that Ctrl-C cannot interrupt."""

TIMESTAMP_APPENDED = 2
READING = {
    "enable__partition__eof": True,
    "enable__auto__commit": False,
    "enable__auto__offset__store": False,
}


@dataclass(frozen=True, kw_only=True)
class ConsumeSelection:
    """Which records to read, and when to stop."""

    topics: Sequence[str]
    span: Span
    partitions: Sequence[int] | None = None
    count: int | None = None
    follow: bool = False


def consume(connection: Connection, wanted: ConsumeSelection, render: Renderer) -> int:
    """Write records until the requested end."""
    if wanted.count == 0:
        return 0
    if not wanted.follow and wanted.span == Span(BeforeEnd()):
        raise UsageError("-o end selects no records: add --follow to wait for new ones")
    asked = ranges.place(connection, wanted.span, _places(connection, wanted))
    reading = Reading(wanted, {each.place: each for each in asked}, render)
    if reading.done:
        return 0
    from confluent_kafka import TopicPartition

    properties = {**READING, "group__id": "neve-command", "auto__offset__reset": "error"}
    with connection.consumer(**properties) as consumer:
        consumer.assign(
            [TopicPartition(*each.place, each.begin) for each in asked if each.place in reading]
        )
        run(connection, consumer, reading, lambda _: None)
    return 0


def _places(connection: Connection, wanted: ConsumeSelection) -> list[tuple[str, int]]:
    places = []
    for topic in wanted.topics:
        known = connection.partitions(topic)
        missing = sorted(set(wanted.partitions or ()) - set(known))
        if missing:
            raise unknown_partition(topic, missing[0], known)
        chosen = known if wanted.partitions is None else sorted(set(wanted.partitions))
        places += [(topic, number) for number in chosen]
    return places


class Reading:
    """The partitions still being read, their ends, and the number of records written."""

    def __init__(
        self, wanted: ConsumeSelection, asked: dict[tuple[str, int], Range], render: Renderer
    ) -> None:
        self.follow = wanted.follow
        self.written = 0
        self.waiting = False  # for an assignment of the group
        self.in_doubt = False  # records may have been written that are not reported yet
        self._left = wanted.count
        self._render = render
        self._open: dict[tuple[str, int], Range] = {}
        self.expected = 0
        for each in asked.values():
            self.open(each)

    def open(self, asked: Range) -> None:
        """Read this partition, unless its range is empty."""
        if self._ended(asked, asked.begin) or not (self.follow or asked.expected):
            return
        self._open[asked.place] = asked
        self.expected += asked.expected

    def close(self, place: tuple[str, int]) -> None:
        self._open.pop(place, None)

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place in self._open

    @property
    def done(self) -> bool:
        return self._left == 0 or not (self._open or self.waiting)

    def _ended(self, asked: Range, position: int) -> bool:
        end = asked.end if asked.end is not None or self.follow else asked.high
        return end is not None and position >= end

    def take(self, messages: Sequence[Any]) -> tuple[list[Any], list[tuple[str, int]]]:
        """Write the requested records of a batch.

        Returns the messages written and the partitions that reached their end.
        """
        written: list[Any] = []
        ended: list[tuple[str, int]] = []
        lines: list[bytes] = []
        for message in messages:
            place = (message.topic(), message.partition())
            asked = self._open.get(place)
            if asked is None or self._left == 0:
                continue
            offset = message.offset()
            if message.error() is not None:
                finished = self._at_end(message)
            elif finished := self._ended(asked, offset):
                pass
            else:
                if offset >= asked.first:
                    lines.append(self._render(as_record(message)))
                    written.append(message)
                    self._left = None if self._left is None else self._left - 1
                finished = self._ended(asked, offset + 1)
            if finished:
                self.close(place)
                ended.append(place)
        self.in_doubt = bool(lines)
        output.write_bytes(b"".join(lines))
        self.written += len(lines)
        return written, ended

    def _at_end(self, message: Any) -> bool:
        error = message.error()
        if error.name() == "_PARTITION_EOF":
            return not self.follow
        place = f"{message.topic()}-{message.partition()}"
        if error.name() == "_AUTO_OFFSET_RESET":
            raise BrokerError(
                f"{place}: the next offset was deleted by retention or by a delete-records "
                "request: run the command again to read from the current start of the log"
            )
        raise explained(error, place)


def as_record(message: Any) -> Record:
    """Convert a client's message into the record that formats use."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_ms,
        int(kind == TIMESTAMP_APPENDED),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def run(
    connection: Connection,
    consumer: Any,
    reading: Reading,
    on_written: Callable[[Sequence[Any]], None],
) -> None:
    """Read until done. Calls `on_written` after each poll, also without messages."""
    from confluent_kafka import TopicPartition

    silence = _Silence(connection, reading)
    hidden = reading.follow or output.stdout_is_terminal()
    with output.progress("records", hidden=hidden) as bar:
        try:
            while not reading.done:
                messages = next_messages(consumer)
                written, ended = reading.take(messages)
                on_written(written)
                reading.in_doubt = False
                if reading.follow:
                    output.flush()
                if ended and not reading.done:
                    consumer.pause([TopicPartition(*place) for place in ended])
                silence.check(heard=bool(messages))
                bar.show(reading.written, reading.expected)
        finally:
            output.flush()


def next_messages(consumer: Any) -> list[Any]:
    """Return the available messages, up to a batch; none after a timeout.

    librdkafka would wait until a batch is full or the time is up, so wait for one message only.
    """
    first: list[Any] = consumer.consume(1, POLL_SECONDS)
    return first + consumer.consume(BATCH_RECORDS - 1, 0) if first else first


class _Silence:
    """Detects a broker that sends nothing: raises after a timeout, or prints a line and waits."""

    def __init__(self, connection: Connection, reading: Reading) -> None:
        self._connection = connection
        self._reading = reading
        self._reported = False
        self._heard_at = runtime.monotonic()

    def check(self, *, heard: bool) -> None:
        if heard:
            self._heard_at, self._reported, self._connection.trouble = (
                runtime.monotonic(),
                False,
                "",
            )
            return
        silent = runtime.monotonic() - self._heard_at
        if not self._reading.follow and silent > self._connection.timeout_seconds:
            if self._reading.waiting and not self._connection.trouble:
                raise BrokerError(
                    f"the group assigned no partition within {silent:.0f} s: its members may be "
                    "slow to rejoin; raise --timeout"
                )
            if self._connection.trouble:
                raise self._connection.unreachable()
            self._connection.metadata()  # raises if the broker does not respond at all
            raise BrokerError(
                f"the broker responds, but sent no record within {silent:.0f} s: an open "
                "transaction may block them; -X isolation.level=read_uncommitted reads them"
            )
        if self._reading.follow and self._connection.trouble and not self._reported:
            output.complain(f"{self._connection.trouble}: waiting for the broker to come back")
            self._reported = True
