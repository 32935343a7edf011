"""Clients of a cluster loop that look at what a single broker's clients cannot see.

The follower reads every partition from its start, wherever its leader is. The prober asks the
leaders questions whose answers must be current: one that was deposed must not answer them.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from soak.ledger import Place
from soak.load import Client, Stage
from soak.wire import Wire

FETCH_VERSION, LIST_VERSION, METADATA_VERSION = 12, 7, 9
LATEST = -1
ANSWER_SECONDS = 10.0
PAUSE_SECONDS = 0.02
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class Follower(Client):
    """A consumer without a group: offsets come one after the other, and never change."""

    def __init__(self, stage: Stage, seed: int, number: int, rack: str) -> None:
        super().__init__(stage, f"follower-{number}", seed)
        self._rack = rack
        self.positions = dict.fromkeys(stage.places, 0)

    def is_at(self, ends: dict[Place, int]) -> bool:
        return all(self.positions[place] >= end for place, end in ends.items())

    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stage.bootstrap,
                "client.id": self.name,
                "client.rack": self._rack,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 2_000,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(*place, 0) for place in self.stage.places])
        try:
            while not self.stage.ended:
                self._turn(consumer)
        finally:
            consumer.close()

    def _turn(self, consumer: Any) -> None:
        shown: dict[Place, list[int]] = {}
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is not None:
                self.ledger.note("reader's error", self.name, message.error().str())
                if not message.error().retriable() and message.error().code() not in PASSING:
                    self.ledger.violated(f"{self.name}: {message.error().str()}")
                continue
            place = Place(message.topic(), message.partition())
            self.ledger.shows(place, message.offset(), message.value())
            if message.offset() != self.positions[place]:
                self.ledger.violated(
                    f"{self.name}: {place}: {message.offset()} came where "
                    f"{self.positions[place]} is next"
                )
            self.positions[place] = message.offset() + 1
            shown.setdefault(place, []).append(message.offset())
        for place, offsets in shown.items():
            self.ledger.note("shown", self.name, str(place), offsets[0], offsets[-1])


class Prober(Client):
    """Asks leaders for the ends of their partitions, and for records, without any retry."""

    def __init__(self, stage: Stage, seed: int, number: int) -> None:
        super().__init__(stage, f"prober-{number}", seed)
        self._ports = (stage.port, *stage.more_ports)
        self._wires: dict[int, Wire] = {}
        self.answers = 0
        self.store_fails_until = 0.0
        """Up to this time a broker may answer that it could not ask the store in time."""

    def work(self) -> None:
        try:
            while not self.stage.ended:
                port = self.chance.choice(self._ports)
                try:
                    self._ask(port)
                except (OSError, AssertionError) as error:
                    self.ledger.note("no answer", self.name, port, repr(error))
                    self._forget(port)
                time.sleep(PAUSE_SECONDS)
        finally:
            for port in list(self._wires):
                self._forget(port)

    def _ask(self, port: int) -> None:
        wire = self._wires.get(port)
        if wire is None:
            wire = self._wires[port] = Wire(port, self.name, timeout_seconds=ANSWER_SECONDS)
        place = self.chance.choice(self.stage.places)
        self._ask_end(wire, port, place)
        self._ask_records(wire, port, place)

    def _ask_end(self, wire: Wire, port: int, place: Place) -> None:
        """What was acknowledged before the question is below the end that is answered."""
        least = self.ledger.acked_ends.get(place, 0)
        request = LIST_OFFSETS.Request
        row = request.Partition(partition_index=place.partition, timestamp=LATEST)
        answer = wire.call(
            LIST_OFFSETS,
            LIST_VERSION,
            request(replica_id=-1, topics=[request.Topic(name=place.topic, partitions=[row])]),
        )
        found = answer.topics[0].partitions[0]
        code = self._code("latest", port, place, found.error_code)
        if code is ErrorCode.NONE:
            self.answers += 1
            if found.offset < least:
                self.ledger.violated(
                    f"{place}: the broker at {port} answered that it ends at {found.offset}, when "
                    f"{least - 1} had been acknowledged"
                )

    def _ask_records(self, wire: Wire, port: int, place: Place) -> None:
        request = FETCH.Request
        row = request.Partition(
            partition=place.partition, fetch_offset=0, partition_max_bytes=4 * 1024
        )
        topics = [request.Topic(topic=place.topic, partitions=[row])]
        asked = request(max_wait_ms=0, min_bytes=0, max_bytes=4 * 1024, topics=topics)
        answer = wire.call(FETCH, FETCH_VERSION, asked)
        self._code("fetch", port, place, answer.responses[0].partitions[0].error_code)

    def _code(self, asked: str, port: int, place: Place, number: int) -> ErrorCode:
        code = ErrorCode(number)
        if code is not ErrorCode.NONE:
            self.ledger.note("refused", self.name, asked, port, str(place), code.name)
        fails = code is ErrorCode.KAFKA_STORAGE_ERROR
        if fails and time.monotonic() < self.store_fails_until:
            return code
        if fails or not (code.retriable or number == 0):
            self.ledger.violated(f"{self.name}: {asked} of {place} was answered {code.name}")
        return code

    def _forget(self, port: int) -> None:
        wire = self._wires.pop(port, None)
        if wire is not None:
            with contextlib.suppress(OSError):
                wire.close()


def leaders(port: int, name: str) -> dict[Place, int]:
    """The leader of every partition, as one broker knows it."""
    with Wire(port, name) as wire:
        answer = wire.call(METADATA, METADATA_VERSION, METADATA.Request(topics=None))
    return {
        Place(topic.name, row.partition_index): row.leader_id
        for topic in answer.topics
        for row in topic.partitions
    }
