"""Readers: one that follows the tail over the wire, consumers in a group, and committers.

They go on across restarts with what they know, so a broker that forgot something is found out by
the next answer it gives.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.records.batch import walk
from neve.records.reference import decode_batch
from soak.ledger import Place
from soak.load import Client, Stage
from soak.producers import RECONNECT_SECONDS
from soak.wire import Wire

FETCH_VERSION, LIST_VERSION, COMMIT_VERSION, OFFSET_FETCH_VERSION = 12, 7, 8, 7
EARLIEST = -2
PASSING_TO_GROUPS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TailReader(Client):
    """Fetches every partition from 0 on, and looks at all that an answer says."""

    def __init__(self, stage: Stage, seed: int) -> None:
        super().__init__(stage, "tail-reader", seed)
        self.positions = dict.fromkeys(stage.places, 0)
        self.passed_by_retention = 0

    def work(self) -> None:
        while not self.stage.ended:
            try:
                with Wire(self.stage.port, self.name) as wire:
                    while not self.stage.ended:
                        self._fetch(wire)
            except OSError:
                time.sleep(RECONNECT_SECONDS)

    def is_at(self, ends: dict[Place, int]) -> bool:
        return all(self.positions[place] >= end for place, end in ends.items())

    def _fetch(self, wire: Wire) -> None:
        answer = wire.call(FETCH, FETCH_VERSION, self._request())
        for topic in answer.responses:
            for row in topic.partitions:
                place = Place(topic.topic, row.partition_index)
                code = ErrorCode(row.error_code)
                if code is ErrorCode.NONE:
                    self._take(place, row)
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range(wire, place)
                elif not code.retriable:
                    self.ledger.violated(f"{self.name}: {place}: {code.name}")

    def _request(self) -> Any:
        request = FETCH.Request
        topics: dict[str, list[Any]] = {}
        for place, offset in self.positions.items():
            row = request.Partition(
                partition=place.partition, fetch_offset=offset, partition_max_bytes=64 * 1024
            )
            topics.setdefault(place.topic, []).append(row)
        return request(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1024 * 1024,
            topics=[request.Topic(topic=name, partitions=rows) for name, rows in topics.items()],
        )

    def _take(self, place: Place, row: Any) -> None:
        self.ledger.tells_bounds(place, row.log_start_offset, row.high_watermark)
        data = bytes(row.records or b"")
        position = self.positions[place]
        for at, header in walk(data):
            for record in decode_batch(data, at):
                if record.offset < position:
                    continue
                if record.offset != position:
                    self.ledger.violated(f"{place}: {record.offset} came where {position} is next")
                self.ledger.shows(place, record.offset, record.value)
                position = record.offset + 1
            if header.next_offset > row.high_watermark:
                self.ledger.violated(
                    f"{place}: records up to {header.next_offset} were shown, the high watermark "
                    f"is {row.high_watermark}"
                )
        self.positions[place] = position

    def _out_of_range(self, wire: Wire, place: Place) -> None:
        """Only retention may have passed us: nothing that was shown may be taken back."""
        request = LIST_OFFSETS.Request
        row = request.Partition(partition_index=place.partition, timestamp=EARLIEST)
        answer = wire.call(
            LIST_OFFSETS,
            LIST_VERSION,
            request(replica_id=-1, topics=[request.Topic(name=place.topic, partitions=[row])]),
        )
        found = answer.topics[0].partitions[0]
        if found.error_code:
            return
        if found.offset <= self.positions[place]:
            self.ledger.violated(
                f"{place}: {self.positions[place]} is out of range, the log starts at "
                f"{found.offset}"
            )
        self.passed_by_retention += 1
        self.positions[place] = found.offset


class GroupConsumer(Client):
    """A member of a group that commits what it has read, and waits for each commit's answer."""

    def __init__(self, stage: Stage, seed: int, number: int, group: str, topics: list[str]) -> None:
        super().__init__(stage, f"consumer-{number}", seed)
        self.group = group
        self._topics = topics
        # The same for all members, or they cannot agree.
        self._assignor = random.Random(f"{seed} {group}").choice(
            ["range", "roundrobin", "cooperative-sticky"]
        )
        self.revocations = 0
        self.read: dict[Place, set[int]] = {}

    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stage.bootstrap,
                "client.id": self.name,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": self._assignor,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.subscribe(self._topics, on_revoke=self._revoked)
        try:
            while not self.stage.ended:
                self._turn(consumer)
        finally:
            consumer.close()

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        self.revocations += 1

    def _turn(self, consumer: Any) -> None:
        messages = consumer.consume(200, timeout=0.1)
        ends: dict[Place, int] = {}
        for message in messages:
            if message.error() is not None:
                # librdkafka reports these from looking up commits, and then tries again.
                passes = message.error().retriable() or message.error().code() in PASSING_TO_GROUPS
                if not passes and message.error().code() > 0:
                    self.ledger.violated(f"{self.name}: {message.error().str()}")
                continue
            place = Place(message.topic(), message.partition())
            self.ledger.shows(place, message.offset(), message.value())
            self.read.setdefault(place, set()).add(message.offset())
            ends[place] = message.offset() + 1
        if ends:
            self._commit(consumer, ends)

    def _commit(self, consumer: Any, ends: dict[Place, int]) -> None:
        commits = self.ledger.commits
        for place, offset in ends.items():
            commits.sends(self.group, place, offset)
        try:
            told = consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in ends.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            self.ledger.note("commit failed", self.group, error.args[0].name())
            return
        for row in told:
            if row.error is None:
                place = Place(row.topic, row.partition)
                self.ledger.note("commit", self.group, str(place), row.offset)
                commits.acked(self.group, place, row.offset)


class Committer(Client):
    """Commits ever higher offsets without being a member, and asks for them back all the time."""

    GROUP = "by-hand"

    def __init__(self, stage: Stage, seed: int) -> None:
        super().__init__(stage, "committer", seed)
        self.checks = 0
        self._numbers = itertools.count(1)
        self._groups: set[str] = {self.GROUP}

    def work(self) -> None:
        while not self.stage.ended:
            try:
                with Wire(self.stage.port, self.name) as wire:
                    self.check(wire)
                    for turn in itertools.count(1):
                        if self.stage.ended:
                            return
                        self._commit(wire)
                        if turn % 10 == 0:
                            self.check(wire)
                        time.sleep(0.01)
            except OSError:
                time.sleep(RECONNECT_SECONDS)

    def _commit(self, wire: Wire) -> None:
        number = next(self._numbers)
        places = self.chance.sample(self.stage.places, 2)
        commits = self.ledger.commits
        request = OFFSET_COMMIT.Request
        for place in places:
            commits.sends(self.GROUP, place, number)
        by_topic: dict[str, list[Any]] = {}
        for place in places:
            row = request.Partition(
                partition_index=place.partition,
                committed_offset=number,
                committed_metadata=f"number {number}",
            )
            by_topic.setdefault(place.topic, []).append(row)
        topics = [request.Topic(name=name, partitions=rows) for name, rows in by_topic.items()]
        answer = wire.call(
            OFFSET_COMMIT, COMMIT_VERSION, request(group_id=self.GROUP, topics=topics)
        )
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code == 0:
                    commits.acked(self.GROUP, Place(topic.name, row.partition_index), number)
                elif not _passes(ErrorCode(row.error_code)):
                    name = ErrorCode(row.error_code).name
                    self.ledger.violated(f"{self.name}: a commit was answered {name}")

    def check(self, wire: Wire) -> None:
        """What is committed is what was told to be; for all groups that have committed."""
        commits = self.ledger.commits
        for group in sorted({group for group, _ in commits.places()}):
            places = [place for each, place in commits.places() if each == group]
            least = {place: commits.at_least(group, place) for place in places}
            request = OFFSET_FETCH.Request
            answer = wire.call(
                OFFSET_FETCH, OFFSET_FETCH_VERSION, request(group_id=group, topics=None)
            )
            if _passes(ErrorCode(answer.error_code)):
                return
            found = {
                Place(topic.name, row.partition_index): row
                for topic in answer.topics
                for row in topic.partitions
            }
            for place in places:
                self.checks += 1
                row = found.get(place)
                offset = -1 if row is None else row.committed_offset
                wrong = commits.wrong(group, place, least[place], offset)
                if wrong is None and group == self.GROUP and row is not None and offset >= 0:
                    wrong = (
                        None if row.metadata == f"number {offset}" else f"metadata {row.metadata}"
                    )
                if wrong is not None:
                    self.ledger.violated(wrong)


def _passes(code: ErrorCode) -> bool:
    return code in PASSING_TO_GROUPS or (code is not ErrorCode.NONE and code.retriable)
