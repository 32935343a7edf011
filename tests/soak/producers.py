"""Producers: confluent-kafka's with its own retries, and raw ones that repeat on purpose.

All write with acks=all. Each knows how many records wait for their fate, and bounds them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from neve.protocol.messages.produce import PRODUCE
from neve.records.reference import Record, build_batch
from soak.ledger import UNKNOWN_OFFSET, Place
from soak.load import CatchUpThrottle, Client, Stage
from soak.payload import Mark, make_value
from soak.wire import Wire

PRODUCE_VERSION, INIT_VERSION = 9, 4
RECONNECT_SECONDS = 0.02


class LibrdkafkaProducer(Client):
    """confluent-kafka, idempotent or not. Plain ones have one request in flight, for the order."""

    def __init__(
        self, stage: Stage, seed: int, number: int, *, idempotent: bool, per_second: float
    ) -> None:
        super().__init__(stage, f"librdkafka-{number}", seed)
        self.number = number
        self.waiting = 0
        self._waiting_max = 400
        self._pace = CatchUpThrottle(per_second)
        if idempotent:
            self.ledger.idempotent.add(number)
        self._config = {
            "bootstrap.servers": stage.bootstrap,
            "client.id": self.name,
            "acks": "all",
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5 if idempotent else 1,
            "compression.type": self.chance.choice(["none", "lz4", "zstd", "gzip", "snappy"]),
            "linger.ms": self.chance.choice([0, 5, 20]),
            "batch.num.messages": self.chance.choice([10, 100]),
            "message.timeout.ms": 300_000,
            "retries": 1_000_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "log_level": 0,
            "error_cb": self._error,
        }

    def _error(self, error: Any) -> None:
        if error.fatal():
            self.ledger.violated(f"{self.name}: it cannot go on: {error.str()}")

    def work(self) -> None:
        producer = Producer(self._config)
        while not self.stage.ended and (self.stage.producing.is_set() or self.waiting):
            producer.poll(0.002)
            if (
                self.stage.producing.is_set()
                and self.waiting < self._waiting_max
                and self._pace.due()
            ):
                self._produce(producer)
        producer.purge()
        producer.poll(0)

    def _produce(self, producer: Any) -> None:
        for _ in range(self.chance.randrange(1, 10)):
            place = self.chance.choice(self.stage.places)
            mark = self.ledger.sends(self.number, place)
            value = make_value(mark, self.chance, self.stage.value_bytes_max)
            self.waiting += 1
            producer.produce(
                place.topic,
                value,
                partition=place.partition,
                on_delivery=lambda error, message, place=place, mark=mark: self._told(
                    place, mark, error, message
                ),
            )

    def _told(self, place: Place, mark: Mark, error: Any, message: Any) -> None:
        self.waiting -= 1
        if error is None:
            offset = message.offset()
            self.ledger.acks(
                place, mark, UNKNOWN_OFFSET if offset is None else offset, len(message.value())
            )
        else:
            self.ledger.fails(place, mark, error.name())
            if not self.stage.ended:
                self.ledger.violated(f"{self.name}: {place} {mark} was given up: {error.str()}")


@dataclass(eq=False)
class Batch:
    """One batch of a raw producer."""

    place: Place
    marks: list[Mark]
    data: bytes
    told: int | None = None
    """The base offset, once acknowledged."""


@dataclass(eq=False)
class Sent:
    """One produce request: at most one batch a partition."""

    batches: list[Batch] = field(default_factory=list)


class RawProducer(Client):
    """A producer that pipelines, loses nothing, and sends again whatever it was not told of.

    An idempotent one also sends again what it *was* told of: it has to be told the same offset.
    """

    IN_FLIGHT_MAX = 5  # what a broker remembers of a producer, and so what clients keep to

    def __init__(
        self, stage: Stage, seed: int, number: int, *, idempotent: bool, per_second: float
    ) -> None:
        super().__init__(stage, f"raw-{number}", seed)
        self.number = number
        self.idempotent = idempotent
        self.producer_id = -1
        self.again = 0
        self._pace = CatchUpThrottle(per_second)
        self._next_sequence: dict[Place, int] = {}
        self._unanswered: deque[Sent] = deque()
        self._answered: deque[Sent] = deque(maxlen=1)
        if idempotent:
            self.ledger.idempotent.add(number)

    def work(self) -> None:
        while not self.stage.ended and (self.stage.producing.is_set() or self._unanswered):
            try:
                self._connected()
            except OSError:
                time.sleep(RECONNECT_SECONDS)

    def _connected(self) -> None:
        """One life of a connection: first what may be lost, then new records."""
        with Wire(self.stage.port, self.name) as wire:
            if self.idempotent and self.producer_id < 0:
                self.producer_id = new_producer_id(wire)
            in_flight: deque[Sent] = deque()
            spoiled: set[Place] = set()
            self._send_again(wire, in_flight)
            while not self.stage.ended and (self.stage.producing.is_set() or in_flight):
                if len(in_flight) < self.IN_FLIGHT_MAX and self.stage.producing.is_set():
                    if self._pace.due():
                        self._send_new(wire, in_flight)
                        continue
                    if not in_flight:
                        time.sleep(0.001)
                        continue
                self._take_answer(wire, in_flight, spoiled)
                if spoiled:
                    while in_flight:
                        self._take_answer(wire, in_flight, spoiled)
                    raise ConnectionError("something was refused: begin anew")

    def _send_again(self, wire: Wire, in_flight: deque[Sent]) -> None:
        pending = list(self._unanswered)
        room = self.IN_FLIGHT_MAX - len(pending)
        if self.idempotent and room > 0 and self.chance.random() < 0.5:
            pending = [*self._answered, *pending]
        for sent in pending:
            self.again += 1
            if not self.idempotent:
                sent.batches = [batch for batch in sent.batches if batch.told is None]
            self._send(wire, sent, in_flight)

    def _send_new(self, wire: Wire, in_flight: deque[Sent]) -> None:
        count = self.chance.randrange(1, 4)
        places = self.chance.sample(self.stage.places, min(count, len(self.stage.places)))
        sent = Sent([self._make_batch(place) for place in places])
        self._unanswered.append(sent)
        self._send(wire, sent, in_flight)
        if self.idempotent and len(in_flight) < self.IN_FLIGHT_MAX and self.chance.random() < 0.1:
            self.again += 1
            self._send(wire, sent, in_flight)

    def _make_batch(self, place: Place) -> Batch:
        records, marks = [], []
        for delta in range(self.chance.randrange(1, 6)):
            mark = self.ledger.sends(self.number, place)
            value = make_value(mark, self.chance, self.stage.value_bytes_max)
            records.append(Record(delta, round(time.time() * 1000), None, value))
            marks.append(mark)
        sequence = self._next_sequence.get(place, 0)
        self._next_sequence[place] = sequence + len(records)
        data = build_batch(
            records,
            producer_id=self.producer_id if self.idempotent else -1,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=sequence if self.idempotent else -1,
        )
        return Batch(place, marks, data)

    def _send(self, wire: Wire, sent: Sent, in_flight: deque[Sent]) -> None:
        wire.send(PRODUCE, PRODUCE_VERSION, produce_request(sent.batches))
        in_flight.append(sent)

    def _take_answer(self, wire: Wire, in_flight: deque[Sent], spoiled: set[Place]) -> None:
        answer = wire.receive()
        sent = in_flight.popleft()
        found = {
            Place(topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in sent.batches:
            self._take_row(batch, found[batch.place], spoiled)
        if all(batch.told is not None for batch in sent.batches):
            if sent in self._unanswered:
                self._unanswered.remove(sent)
            self._answered.append(sent)

    def _take_row(self, batch: Batch, row: Any, spoiled: set[Place]) -> None:
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            tell_acked(self.ledger, batch, row.base_offset)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and self.idempotent:
            tell_acked(self.ledger, batch, UNKNOWN_OFFSET)
        elif code.retriable or (
            # What follows a refused batch of the same partition cannot be in order.
            code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.place in spoiled
        ):
            spoiled.add(batch.place)
            if batch.told is None:
                self.ledger.fails(batch.place, batch.marks[0], code.name)
        else:
            self.ledger.violated(
                f"{self.name}: {batch.place} {batch.marks[0]}: {code.name}: {row.error_message}"
            )


class DoublingProducer(Client):
    """Sends each batch over two connections at once, and believes whichever answer is first.

    That is a client whose request timed out and was sent again, while the first is on its way.
    """

    def __init__(self, stage: Stage, seed: int, number: int, *, per_second: float) -> None:
        super().__init__(stage, f"doubling-{number}", seed)
        self.number = number
        self._inner = RawProducer(stage, seed, number, idempotent=True, per_second=per_second)
        self._pace = CatchUpThrottle(per_second)
        self._batches: list[Batch] = []

    def work(self) -> None:
        while not self.stage.ended and (self.stage.producing.is_set() or self._batches):
            try:
                with (
                    Wire(self.stage.port, self.name) as first,
                    Wire(self.stage.port, self.name) as second,
                ):
                    self._connected(first, second)
            except OSError:
                time.sleep(RECONNECT_SECONDS)

    def _connected(self, first: Wire, second: Wire) -> None:
        if self._inner.producer_id < 0:
            self._inner.producer_id = new_producer_id(first)
        while not self.stage.ended and (self.stage.producing.is_set() or self._batches):
            if not self._pace.due():
                time.sleep(0.001)
                continue
            if not self._batches:
                places = self.chance.sample(self.stage.places, 2)
                self._batches = [self._inner._make_batch(place) for place in places]
            request = produce_request(self._batches)
            for wire in (first, second):
                wire.send(PRODUCE, PRODUCE_VERSION, request)
            # The later request is answered first where a broker is hasty.
            for wire in (second, first):
                self._take_answer(wire)
            self._batches = [batch for batch in self._batches if batch.told is None]

    def _take_answer(self, wire: Wire) -> None:
        answer = wire.receive()
        rows = {
            Place(topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in self._batches:
            self._inner._take_row(batch, rows[batch.place], set())


def new_producer_id(wire: Wire) -> int:
    answer = wire.call(
        INIT_PRODUCER_ID,
        INIT_VERSION,
        INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=60_000),
    )
    if answer.error_code:
        raise ConnectionError(f"no producer id: {ErrorCode(answer.error_code).name}")
    found: int = answer.producer_id
    return found


def produce_request(batches: list[Batch]) -> Any:
    request = PRODUCE.Request
    by_topic: dict[str, list[Any]] = {}
    for batch in batches:
        row = request.Partition(index=batch.place.partition, records=batch.data)
        by_topic.setdefault(batch.place.topic, []).append(row)
    topics = [request.Topic(name=name, partition_data=rows) for name, rows in by_topic.items()]
    return request(acks=-1, timeout_ms=30_000, topic_data=topics)


def tell_acked(ledger: Any, batch: Batch, base_offset: int) -> None:
    known = base_offset != UNKNOWN_OFFSET
    for delta, mark in enumerate(batch.marks):
        offset = base_offset + delta if known else UNKNOWN_OFFSET
        ledger.acks(batch.place, mark, offset, len(batch.data) // len(batch.marks))
    if batch.told is None:
        batch.told = base_offset
