"""Implementation of `neve topic consume -g`: a member of a consumer group.

It starts at the group's committed offsets, commits what it has written, and ends when it has read
all assigned partitions. A member without a partition is not done: a rebalance may be in progress,
or other members may have to release partitions first. It ends only if the group is stable and other
members own all partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from neve import runtime
from neve.cli import output, ranges
from neve.cli.connection import BrokerError, Connection, plain
from neve.cli.consume import READING, ConsumeSelection, Reading, run
from neve.cli.group_admin import find, state_name
from neve.cli.offsets import AfterStart, BeforeEnd, Span
from neve.cli.output import UsageError
from neve.cli.record_format import Renderer

COMMIT_EVERY_SECONDS = 5.0
SESSION_SECONDS_MIN, SESSION_SECONDS_MAX = 6.0, 45.0
"""Default of brokers and of librdkafka."""

GROUP_POLL_SECONDS = 0.5
SETTLED = "Stable"


def consume(connection: Connection, wanted: ConsumeSelection, group: str, render: Renderer) -> int:
    """Write and commit the records of the assigned partitions until they are read."""
    if wanted.partitions is not None:
        raise UsageError("-p cannot be combined with -g: the group assigns the partitions")
    if wanted.span.end is not None or wanted.span.first not in (AfterStart(), BeforeEnd()):
        raise UsageError(
            "with -g, -o must be start or end: where to begin without a committed offset"
        )
    if wanted.count == 0:
        return 0
    places = {(topic, number) for topic in wanted.topics for number in connection.partitions(topic)}
    reset = "earliest" if wanted.span.first == AfterStart() else "latest"
    properties = {
        **READING,
        **_patience(connection),
        "group__id": group,
        "auto__offset__reset": reset,
    }
    with connection.consumer(**properties) as consumer:
        others = _Others(connection, group, places)
        member = Member(connection, consumer, Reading(wanted, {}, render), others)
        consumer.subscribe(
            list(wanted.topics), on_assign=member.on_assign, on_revoke=member.on_revoke
        )
        try:
            member.run()
        finally:
            member.commit()
            # Closed alone, a member without a partition would stay in a cooperative group until its
            # session is over.
            consumer.unsubscribe()
    return 0


def _patience(connection: Connection) -> dict[str, int]:
    """Return the timeout of a commit. Nothing, not even Ctrl-C, interrupts it earlier."""
    seconds = min(max(connection.timeout_seconds, SESSION_SECONDS_MIN), SESSION_SECONDS_MAX)
    patience = {"socket__timeout__ms": round(seconds * 1000)}
    if connection.given("group.protocol") != "consumer":  # KIP-848: brokers set the session
        patience["session__timeout__ms"] = round(seconds * 1000)
    return patience


class Member:
    """A member of a group: reads the assigned partitions and commits what it has written."""

    def __init__(
        self, connection: Connection, consumer: Any, reading: Reading, others: _Others
    ) -> None:
        self._connection = connection
        self._consumer = consumer
        self._reading = reading
        self._others = others
        self._given: set[tuple[str, int]] = set()
        self._empty_handed = False  # since the group last changed
        self._uncommitted: dict[tuple[str, int], int] = {}
        self._sent: dict[tuple[str, int], int] = {}
        self._sent_at = runtime.monotonic()
        self._reading.waiting = True

    def run(self) -> None:
        run(self._connection, self._consumer, self._reading, self._written)

    def on_assign(self, _: Any, given: Sequence[Any]) -> None:
        places = [(each.topic, each.partition) for each in given]
        self._given.update(places)
        self._changed()
        for each in ranges.place(self._connection, Span(AfterStart()), places):
            self._reading.open(each)

    def on_revoke(self, _: Any, taken: Sequence[Any]) -> None:
        try:
            self.commit()
        except BrokerError as error:
            if not self._reading.follow:
                raise
            output.complain(error)
        for each in taken:
            self._given.discard((each.topic, each.partition))
            self._reading.close((each.topic, each.partition))
        self._changed()

    def _changed(self) -> None:
        self._empty_handed = not self._given
        self._reading.waiting = self._reading.follow or self._empty_handed

    def _written(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self._uncommitted[message.topic(), message.partition()] = message.offset() + 1
        if runtime.monotonic() - self._sent_at > COMMIT_EVERY_SECONDS:
            self._commit_meanwhile()
        if self._empty_handed and self._others.read_all(self._consumer.memberid()):
            output.complain("the other members of the group own all partitions")
            self._empty_handed = False
            self._reading.waiting = self._reading.follow

    def _commit_meanwhile(self) -> None:
        """Commit asynchronously: an unavailable broker must not block the consumer.

        A failure is reported when partitions are revoked, or at the end.
        """
        self._sent_at = runtime.monotonic()
        if self._uncommitted != self._sent:
            output.flush()
            with contextlib.suppress(BrokerError):
                self._send(asynchronous=True)
                self._sent = dict(self._uncommitted)

    def commit(self) -> None:
        """Flush the output, then commit what was written.

        Ctrl-C can interrupt the command while it writes records. How many of them were written is
        then unknown, so they are not committed.
        """
        output.flush()
        in_doubt, self._reading.in_doubt = self._reading.in_doubt, False
        try:
            if self._uncommitted:
                self._send(asynchronous=False)
        finally:
            self._uncommitted.clear()  # or leaving the group would try, and wait, again
        if in_doubt:
            raise _not_committed("the command was interrupted while it wrote them")

    def _send(self, *, asynchronous: bool) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(*place, at) for place, at in self._uncommitted.items()]
        try:
            # A commit to a broker that hangs never ends, and close() would wait for it.
            self._connection.metadata(offsets[0].topic)
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except (BrokerError, KafkaException) as error:
            reason = error if isinstance(error, BrokerError) else plain(error.args[0])
            raise _not_committed(reason) from None


def _not_committed(reason: object) -> BrokerError:
    return BrokerError(f"the written records are not committed and will be read again: {reason}")


class _Others:
    """The state of the group, polled while this member has no partition."""

    def __init__(self, connection: Connection, group: str, places: set[tuple[str, int]]) -> None:
        self._connection = connection
        self._group = group
        self._places = places
        self._polled_at: float | None = None

    def read_all(self, own_id: str) -> bool:
        """Return whether the group is stable, with this member, and others own all partitions.

        A cooperative rebalance looks stable before it ends. Partitions in transit have no owner
        then.
        """
        now = runtime.monotonic()
        if self._polled_at is not None and now - self._polled_at < GROUP_POLL_SECONDS:
            return False
        self._polled_at = now
        with contextlib.suppress(BrokerError):  # the next poll may succeed
            found = find(self._connection, self._group)
            ours = [each for each in found.members if each.member_id == own_id]
            if state_name(found.state) == SETTLED and ours:
                return self._places <= _owned(found.members) - _owned(ours)
        return False


def _owned(members: Sequence[Any]) -> set[tuple[str, int]]:
    return {
        (each.topic, each.partition)
        for member in members
        for each in (member.assignment.topic_partitions if member.assignment else [])
    }
