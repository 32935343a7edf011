"""Lag of consumer groups.

The lag in records is the log's end minus the committed offset. The lag in seconds is the age of the
first unconsumed record, which is fetched to get its timestamp; without such a record it is 0 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neve import runtime
from neve.cli.connection import LOOKUP_GROUP, Connection, Watermarks
from neve.cli.consume import next_messages

Place = tuple[str, int]
FETCH_BYTES = 64 * 1024
"""A broker sends at least one batch. A small limit keeps it at one."""


@dataclass(frozen=True)
class Lag:
    """One partition of a group. None means unknown."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    seconds: float | None = None

    @property
    def records(self) -> int | None:
        """The offsets between the committed offset, or the log's start if later, and the end."""
        if self.committed is None or self.end is None or self.start is None:
            return None
        return max(self.end - max(self.committed, self.start), 0)


def committed(
    connection: Connection, group: str, places: Sequence[Place] | None = None
) -> dict[Place, int]:
    """Return a group's committed offsets, of these partitions or of all."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = None if places is None else [TopicPartition(*place) for place in places]
    futures = connection.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, asked)], request_timeout=connection.timeout_seconds
    )
    found = connection.result(futures[group], f"group {group}").topic_partitions
    rows = {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
    return dict(sorted(rows.items()))


def lags(
    connection: Connection, offsets: Mapping[Place, int], assigned: Sequence[Place]
) -> list[Lag]:
    """Return the lag of every partition with a committed offset or an assignment."""
    places = sorted({*offsets, *assigned})
    topics = sorted({topic for topic, _ in places})
    there = {(topic, number) for topic in topics for number in _numbers(connection, topic)}
    marks = connection.watermarks([place for place in places if place in there])
    behind = {
        place: max(offset, marks[place].low)
        for place, offset in offsets.items()
        if place in marks and offset < marks[place].high
    }
    timestamps, ends = first_timestamps(connection, behind)
    now_ms = runtime.now_ms()
    ages = {place: max(now_ms - at, 0) / 1000 for place, at in timestamps.items()}
    ages |= {place: 0.0 for place in offsets if place in marks and place not in behind}
    # If the readable end is before the log's, an open transaction follows, of unknown age.
    ages |= {place: 0.0 for place, end in ends.items() if end >= marks[place].high}
    return [_lag(place, offsets.get(place), marks.get(place), ages.get(place)) for place in places]


def _numbers(connection: Connection, topic: str) -> list[int]:
    """Return a topic's partitions; none if it was deleted, as groups may still have its offsets."""
    found = connection.metadata(topic).topics.get(topic)
    return [] if found is None or found.error is not None else sorted(found.partitions)


def _lag(place: Place, offset: int | None, marks: Watermarks | None, seconds: float | None) -> Lag:
    if marks is None:
        return Lag(*place, offset, None, None)
    return Lag(*place, offset, marks.low, marks.high, seconds)


def first_timestamps(
    connection: Connection, offsets: Mapping[Place, int]
) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return the timestamp of the first record at or after each offset, if it arrives in time.

    Also returns the ends of partitions without such a record: a log may end with control records,
    which consumers do not receive.
    """
    from confluent_kafka import TopicPartition

    if not offsets:
        return {}, {}
    found: dict[Place, int] = {}
    ends: dict[Place, int] = {}
    open_places = dict.fromkeys(offsets)
    given_up_at = runtime.monotonic() + connection.timeout_seconds
    properties: dict[str, Any] = {
        "group__id": LOOKUP_GROUP,
        "enable__auto__commit": False,
        "enable__partition__eof": True,
        "auto__offset__reset": "error",
        "max__partition__fetch__bytes": FETCH_BYTES,
        "queued__max__messages__kbytes": FETCH_BYTES // 1024,
    }
    with connection.consumer(**properties) as consumer:
        consumer.assign([TopicPartition(*place, at) for place, at in offsets.items()])
        while open_places and runtime.monotonic() < given_up_at:
            closed = []
            for message in next_messages(consumer):
                place = (message.topic(), message.partition())
                if place not in open_places:
                    continue
                if message.error() is None:
                    found[place] = message.timestamp()[1]
                elif message.error().name() == "_PARTITION_EOF":
                    ends[place] = message.offset()
                del open_places[place]  # the end or an error: there is no record
                closed.append(TopicPartition(*place))
            if closed and open_places:
                consumer.pause(closed)
    return found, ends
