"""The kill loop: brokers die one after another under load, and every promise is checked.

`run` gives back what happened; it raises ViolationError, with the seed and the history's file, when
a promise was broken.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import neve
from soak.ledger import Ledger, Place, ViolationError
from soak.load import Client, Stage, wait_until
from soak.nursery import BrokerEndedError, Nursery
from soak.plan import KEPT, TOPICS, Moment, Plan
from soak.producers import DoublingProducer, LibrdkafkaProducer, RawProducer
from soak.readers import Committer, GroupConsumer, TailReader
from soak.wire import Wire

READY_SECONDS = 30.0
SETTLE_SECONDS = 60.0
KILLED = -9


@dataclass
class Outcome:
    """What a run amounted to, for tests that ask whether anything happened at all."""

    kills: int = 0
    killed_while_starting: int = 0
    died_at_calls: Counter[str] = field(default_factory=Counter)
    ended_by_itself: int = 0
    acks: int = 0
    commits: int = 0
    commit_checks: int = 0
    sent_again: int = 0
    repeated_in_log: int = 0
    starts: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[str] = field(default_factory=Counter)
    ready_seconds: list[float] = field(default_factory=list)


class KillLoop:
    """One run of one plan in one folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.ledger = Ledger(folder / "history.jsonl")
        self.nursery = Nursery(folder, plan.settings, plan.bug)
        places = [
            Place(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)
        ]
        self.stage = Stage(self.nursery.port, self.ledger, places, plan.load.value_bytes_max)
        self.outcome = Outcome()
        self.tail_reader = TailReader(self.stage, plan.seed)
        self.committers = [Committer(self.stage, plan.seed) for _ in range(plan.load.committers)]
        self.consumers = [
            GroupConsumer(self.stage, plan.seed, number, "readers", list(KEPT))
            for number in range(plan.load.consumers)
        ]
        self.producers = self._make_producers()

    def _make_producers(self) -> list[Any]:
        load, seed, stage = self.plan.load, self.plan.seed, self.stage
        made: list[Any] = []
        for kind, idempotent, count in (
            (LibrdkafkaProducer, True, load.librdkafka_idempotent),
            (LibrdkafkaProducer, False, load.librdkafka_plain),
            (RawProducer, True, load.raw_idempotent),
            (RawProducer, False, load.raw_plain),
        ):
            for _ in range(count):
                made.append(
                    kind(stage, seed, len(made), idempotent=idempotent, per_second=load.per_second)
                )
        for _ in range(load.doubling):
            made.append(DoublingProducer(stage, seed, len(made), per_second=load.per_second))
        return made

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, self.tail_reader, *self.consumers, *self.committers]

    # -- the run -----------------------------------------------------------------------------

    def run(self) -> Outcome:
        self.ledger.note("plan", dataclasses.asdict(self.plan))
        try:
            with self.nursery:
                self._run()
        except ViolationError as violation:
            raise ViolationError(self._explained(violation)) from violation
        finally:
            self._join_clients()
            self.ledger.close()
        return self.outcome

    def _run(self) -> None:
        self.nursery.launch()
        self.nursery.wait_ready(READY_SECONDS)
        create_topics(self.stage.bootstrap, TOPICS)
        self.nursery.kill()
        self.nursery.steer(**self.plan.faults)
        self.stage.running.set()
        self.stage.producing.set()
        for client in self.clients:
            client.start()
        for number, moment in enumerate(self.plan.moments):
            self.ledger.note("life", number, dataclasses.asdict(moment))
            self._live_and_die(moment)
            self._check()
        self.nursery.launch()
        self.nursery.wait_ready(READY_SECONDS)
        self._finish()

    def _join_clients(self) -> None:
        self.stage.running.clear()
        for client in self.clients:
            if client.ident is not None:
                client.join(10)

    def _check(self) -> None:
        if self.ledger.violation is not None:
            raise self.ledger.violation

    def _explained(self, violation: BaseException) -> str:
        return (
            f"seed {self.plan.seed}, after {self.outcome.kills} kills: {violation}\n"
            f"history: {self.ledger.file}, broker's log: {self.nursery.log}"
        )

    # -- one life ----------------------------------------------------------------------------

    def _live_and_die(self, moment: Moment) -> None:
        launched = time.monotonic()
        acks, size_bytes = len(self.ledger.acked), self.ledger.acked_bytes
        self.nursery.launch(moment.death)
        try:
            if moment.kind == "start":
                time.sleep(moment.amount)
            else:
                self.nursery.wait_ready(READY_SECONDS)
                self.outcome.ready_seconds.append(time.monotonic() - launched)
                self._live(moment, acks, size_bytes)
            if not self.nursery.is_ready():
                self.outcome.killed_while_starting += 1
            code = self.nursery.kill()
        except BrokerEndedError as ended:
            code = ended.code
            if code != KILLED and not self.plan.may_end_by_itself:
                self.ledger.violated(str(ended))
            if code == KILLED:
                self.outcome.died_at_calls[moment.call] += 1
            else:
                self.outcome.ended_by_itself += 1
        self.outcome.kills += 1
        self.ledger.note("dead", code)

    def _live(self, moment: Moment, acks: int, size_bytes: int) -> None:
        began = time.monotonic()
        until = began + self.plan.life_seconds_max
        while time.monotonic() < until and self.ledger.violation is None:
            if moment.kind == "acks" and len(self.ledger.acked) - acks >= moment.amount:
                return
            if moment.kind == "bytes" and self.ledger.acked_bytes - size_bytes >= moment.amount:
                return
            if moment.kind == "seconds" and time.monotonic() - began >= moment.amount:
                return
            self.nursery.check_alive()
            time.sleep(0.002)

    # -- the end -----------------------------------------------------------------------------

    def _finish(self) -> None:
        """Let everything settle, read all of it in two ways, and judge."""
        self.stage.producing.clear()
        for producer in self.producers:
            wait_until(
                f"the end of {producer.name}",
                lambda producer=producer: not producer.is_alive(),
                SETTLE_SECONDS,
                self.ledger,
            )
        self._check()
        self.ledger.note("producers have ended")
        ends = {place: self.ledger.high_watermarks.get(place, 0) for place in self.stage.places}
        wait_until("reading all", lambda: self.tail_reader.is_at(ends), SETTLE_SECONDS, self.ledger)
        if self.consumers:
            wait_until("the group's reading all", self._group_is_done, SETTLE_SECONDS, self.ledger)
        self.ledger.note("all is read")
        for committer in self.committers:
            with Wire(self.stage.port, "last look") as wire:
                committer.check(wire)
        self._check()
        self._join_clients()  # while a broker is there for members to take their leave
        self.ledger.note("reading through a broker")
        for place, (start, end, log) in read_through_broker(self.stage).items():
            self.outcome.starts[place], self.outcome.ends[place] = start, end
            self.ledger.judge(place, start, end, log)
        self.ledger.note("stopping")
        code = self.nursery.stop()
        if code != 0:
            self.ledger.violated(f"asked to stop, the broker ended with {code}")
        self.ledger.note("reading without a broker")
        for place, (start, end, log) in read_without_broker(self).items():
            if end != self.outcome.ends[place] or start < self.outcome.starts[place]:
                self.ledger.violated(
                    f"{place}: {self.outcome.starts[place]} to {self.outcome.ends[place]} through "
                    f"a broker, {start} to {end} without"
                )
            self.ledger.judge(place, start, end, log)
        if "Traceback" in self.nursery.log.read_text(encoding="utf-8"):
            self.ledger.violated("a broker's log has a traceback: that is a mistake of its own")
        self._check()
        self._sum_up()
        self.ledger.note("done")

    def _group_is_done(self) -> bool:
        """Whether the group's members have read, between them, all that there is."""
        for place in self.stage.places:
            if place.topic in KEPT:
                read = set().union(*(each.read.get(place, ()) for each in self.consumers))
                if len(read) < self.ledger.high_watermarks.get(place, 0):
                    return False
        return True

    def _sum_up(self) -> None:
        outcome = self.outcome
        outcome.acks = len(self.ledger.acked)
        outcome.commits = self.ledger.commits.acks
        outcome.commit_checks = sum(each.checks for each in self.committers)
        outcome.sent_again = sum(getattr(each, "again", 0) for each in self.producers)
        outcome.repeated_in_log = sum(self.ledger.repeated.values())
        outcome.writes = self.nursery.writes()
        outcome.interrupted = self.nursery.interrupted()


def create_topics(bootstrap: str, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(name, count, config=config) for name, (count, config) in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(30)


Log = tuple[int, int, dict[int, bytes | None]]


def read_through_broker(stage: Stage, rack: str = "") -> dict[Place, Log]:
    """Every partition from its start, with an ordinary consumer in this rack."""
    config = {
        "client.rack": rack,
        "bootstrap.servers": stage.bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "log_level": 0,
    }
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        consumer = Consumer(config)  # a new one: it must not be told of what the last one met
        try:
            found = _read_places(consumer, stage.places)
        finally:
            consumer.close()
        if found is not None:
            return found
        stage.ledger.note("retention took a start from under the reader")
        time.sleep(0.2)
    raise AssertionError(f"retention is faster than a reader, for {SETTLE_SECONDS} s")


def _read_places(consumer: Any, places: list[Place]) -> dict[Place, Log] | None:
    """All partitions at once; None where retention took a start from under the reader."""
    logs: dict[Place, Log] = {}
    for place in places:
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=30)
        logs[place] = low, high, {}
    consumer.assign([TopicPartition(*place, low) for place, (low, _, _) in logs.items()])
    unread = {place for place, (low, high, _) in logs.items() if low < high}
    until = time.monotonic() + SETTLE_SECONDS
    while unread and time.monotonic() < until:
        for message in consumer.consume(500, timeout=0.05):
            if message.error() is not None:
                if "out of range" in message.error().str().lower():
                    return None
                continue
            place = Place(message.topic(), message.partition())
            _, high, log = logs[place]
            if message.offset() < high:
                log[message.offset()] = message.value()
            if message.offset() >= high - 1:
                unread.discard(place)
    return logs


def read_without_broker(loop: KillLoop) -> dict[Place, Log]:
    """The same from the bucket alone."""
    found: dict[Place, Log] = {}
    with neve.open(str(loop.nursery.bucket)) as bucket:
        for place in loop.stage.places:
            start, end = bucket.offsets(*place)
            log = {record.offset: record.value for record in bucket.read(*place)}
            found[place] = start, end, log
    return found
