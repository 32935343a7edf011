"""A store that fails, slows down or hangs under a broker: what clients notice, and what not.

The load and the checker are those of the kill loop. Beside them, probes ask all the time for what
must go on without the store: fetches of records in memory, and heartbeats of a group. A flood of
large batches makes sure that memory would grow if anything could make it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.produce import PRODUCE
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.records.reference import Record, build_batch
from soak.kill_loop import READY_SECONDS, KillLoop, create_topics
from soak.ledger import Place
from soak.load import Client, Stage, wait_until
from soak.plan import KIB, TOPICS, Load, Plan
from soak.producers import PRODUCE_VERSION, RECONNECT_SECONDS, Batch, produce_request
from soak.readers import FETCH_VERSION
from soak.wire import Wire

MIB = 1024 * KIB
FLOOD = Place("flood", 0)
FLOOD_BATCH_BYTES, FLOOD_CONNECTIONS, FLOOD_PAUSE_SECONDS = 256 * KIB, 6, 0.02
FLOOD_CONFIG = {"retention.bytes": str(8 * MIB)}
WARM_UP_SECONDS = 0.7
AGAIN_SECONDS = 45.0
"""Within so long after the store is well again, producers get on."""

SETTINGS: dict[str, object] = {
    "store.folder.fsync": False,
    "wal.buffer.bytes": 4 * MIB,
    "wal.object.bytes": 1 * MIB,
    "wal.tail.objects": 64,
    "segment.bytes": 4 * MIB,
    "segment.ms": 500,
    "tail.cache.bytes": 16 * MIB,
    "fetch.catchup.bytes": 8 * MIB,
    "broker.receive.pool.bytes": 8 * MIB,
    "maintenance.interval.ms": 100,
    "maintenance.gc.interval.ms": 300,
    "retention.check.ms": 200,
    "cluster.poll.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "topics.auto.create": False,
}
# A broker's bound with default settings is 512 MiB; those above take some 250 MiB less, half of
# which is left for what the bad store itself copies.
MEMORY_BYTES_MAX = 384 * MIB


@dataclass(frozen=True)
class Trouble:
    """How the store behaves, for how long, and how many requests of the flood may pile up."""

    faults: dict[str, object]
    seconds: float
    flood_in_flight: int = 4


class Probe(Client):
    """Asks again and again; keeps how long each answer took, and what was wrong."""

    def __init__(self, stage: Stage, seed: int, name: str) -> None:
        super().__init__(stage, name, seed)
        self.taken_seconds: list[tuple[float, float]] = []
        self.wrong: list[str] = []

    def worst_seconds(self, since: float) -> float:
        return max((taken for at, taken in self.taken_seconds if at >= since), default=0.0)

    def asked(self, since: float) -> int:
        return sum(1 for at, _ in self.taken_seconds if at >= since)

    def work(self) -> None:
        while not self.stage.ended:
            with contextlib.suppress(OSError), Wire(self.stage.port, self.name) as wire:
                self.begin(wire)
                while not self.stage.ended:
                    began = time.monotonic()
                    self.ask(wire)
                    self.taken_seconds.append((began, time.monotonic() - began))
                    time.sleep(0.05)
            time.sleep(RECONNECT_SECONDS)

    def begin(self, wire: Wire) -> None:
        """What comes first on a connection."""

    def ask(self, wire: Wire) -> None:
        raise NotImplementedError


class MemoryFetch(Probe):
    """Fetches the newest record that the tail's reader has seen: it is committed, and in memory."""

    def ask(self, wire: Wire) -> None:
        place = self.stage.places[0]
        newest = self.ledger.high_watermarks.get(place, 0) - 1
        if newest < 0:
            return
        request = FETCH.Request
        row = request.Partition(
            partition=place.partition, fetch_offset=newest, partition_max_bytes=64 * KIB
        )
        topic = request.Topic(topic=place.topic, partitions=[row])
        answer = wire.call(
            FETCH, FETCH_VERSION, request(max_wait_ms=500, min_bytes=1, topics=[topic])
        )
        found = answer.responses[0].partitions[0]
        if found.error_code or not found.records:
            self.wrong.append(f"fetch at {newest}: {ErrorCode(found.error_code).name}")


class Pulse(Probe):
    """A member of a group of its own that only beats. Its group must never lose it."""

    GROUP = "pulse"

    def begin(self, wire: Wire) -> None:
        self._member, self._generation = "", -1
        joined = self._join(wire)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = joined.member_id
            joined = self._join(wire)
        if joined.error_code:
            raise ConnectionError(ErrorCode(joined.error_code).name)
        self._member, self._generation = joined.member_id, joined.generation_id
        request = SYNC_GROUP.Request
        row = request.Assignment(member_id=self._member, assignment=b"all")
        synced = wire.call(
            SYNC_GROUP,
            3,
            request(
                group_id=self.GROUP,
                generation_id=self._generation,
                member_id=self._member,
                assignments=[row],
            ),
        )
        if synced.error_code:
            raise ConnectionError(ErrorCode(synced.error_code).name)

    def _join(self, wire: Wire) -> Any:
        request = JOIN_GROUP.Request
        return wire.call(
            JOIN_GROUP,
            5,
            request(
                group_id=self.GROUP,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                member_id=self._member,
                protocol_type="consumer",
                protocols=[request.Protocol(name="range", metadata=b"")],
            ),
        )

    def ask(self, wire: Wire) -> None:
        answer = wire.call(
            HEARTBEAT,
            3,
            HEARTBEAT.Request(
                group_id=self.GROUP, generation_id=self._generation, member_id=self._member
            ),
        )
        if answer.error_code:
            self.wrong.append(f"heartbeat: {ErrorCode(answer.error_code).name}")


class Flood(Client):
    """While the store is bad, sends large batches as fast as they are taken, answered or not."""

    def __init__(self, stage: Stage, seed: int, number: int) -> None:
        super().__init__(stage, f"flood-{number}", seed)
        self.in_flight_max = 0
        """Requests that may wait for their answers; 0: it is quiet."""
        self.sent_bytes = 0
        self.refused: set[ErrorCode] = set()

    def work(self) -> None:
        value = self.chance.randbytes(FLOOD_BATCH_BYTES)
        batch = build_batch([Record(0, round(time.time() * 1000), None, value)])
        request = produce_request([Batch(FLOOD, [], batch)])
        while not self.stage.ended:
            if self.in_flight_max:
                with contextlib.suppress(OSError), Wire(self.stage.port, self.name) as wire:
                    self._flow(wire, request)
            time.sleep(RECONNECT_SECONDS)

    def _flow(self, wire: Wire, request: Any) -> None:
        in_flight = 0
        while self.in_flight_max and not self.stage.ended:
            if in_flight < self.in_flight_max:
                wire.send(PRODUCE, PRODUCE_VERSION, request)
                self.sent_bytes += FLOOD_BATCH_BYTES
                in_flight += 1
            else:
                row = wire.receive().responses[0].partition_responses[0]
                in_flight -= 1
                if row.error_code:
                    self.refused.add(ErrorCode(row.error_code))
            time.sleep(FLOOD_PAUSE_SECONDS)


@dataclass
class Report:
    """What was measured while the store was bad, and after."""

    trouble: Trouble
    heartbeat_seconds_max: float = 0.0
    heartbeats: int = 0
    fetch_seconds_max: float = 0.0
    fetches: int = 0
    wrong: list[str] = field(default_factory=list)
    revocations: int = 0
    flood_bytes: int = 0
    flood_refused: set[ErrorCode] = field(default_factory=set)
    memory_before_bytes: int = 0
    memory_peak_bytes: int = 0
    ready_seconds: float = 0.0
    again_seconds: float = 0.0
    """From the store's recovery to the next acknowledgement."""


class BadStore(KillLoop):
    """One troubled run: trouble after trouble, while a broker serves or while it starts."""

    def __init__(
        self, folder: Path, seed: int, troubles: list[Trouble], *, while_starting: bool
    ) -> None:
        super().__init__(Plan(seed, [], SETTINGS, Load(consumers=1, per_second=20.0)), folder)
        self.troubles = troubles
        self.while_starting = while_starting
        self.reports: list[Report] = []
        self.fetches = MemoryFetch(self.stage, seed, "memory-fetch")
        self.pulse = Pulse(self.stage, seed, "pulse")
        self.floods = [Flood(self.stage, seed, number) for number in range(FLOOD_CONNECTIONS)]

    @property
    def clients(self) -> list[Client]:
        if self.while_starting:
            return super().clients  # nobody is served who could be probed
        return [*super().clients, self.fetches, self.pulse, *self.floods]

    def _run(self) -> None:
        self.nursery.launch()
        self.nursery.wait_ready(READY_SECONDS)
        create_topics(self.stage.bootstrap, {**TOPICS, FLOOD.topic: (1, FLOOD_CONFIG)})
        self.stage.running.set()
        self.stage.producing.set()
        for client in self.clients:
            client.start()
        if not self.while_starting:
            wait_until("the first beat", lambda: self.pulse.asked(0) > 0, 30, self.ledger)
        wait_until("an assignment", lambda: bool(self.consumers[0].read), 30, self.ledger)
        for trouble in self.troubles:
            self._check()
            time.sleep(WARM_UP_SECONDS)
            report = Report(trouble)
            self.reports.append(report)
            self.ledger.note("trouble", dataclasses.asdict(trouble))
            if self.while_starting:
                self._start_in_trouble(report)
            else:
                self._serve_in_trouble(report)
            self._get_on(report)
        self._finish()

    def _serve_in_trouble(self, report: Report) -> None:
        report.memory_before_bytes = report.memory_peak_bytes = self.nursery.resident_bytes()
        began = time.monotonic()
        revocations = self.consumers[0].revocations
        self.nursery.steer(**report.trouble.faults)
        for flood in self.floods:
            flood.in_flight_max = report.trouble.flood_in_flight
        self._sample_memory(report, until=began + report.trouble.seconds)
        # Before it is mended: what waits for the store is still waiting.
        report.wrong = [*self.fetches.wrong, *self.pulse.wrong]
        report.heartbeat_seconds_max = self.pulse.worst_seconds(began)
        report.heartbeats = self.pulse.asked(began)
        report.fetch_seconds_max = self.fetches.worst_seconds(began)
        report.fetches = self.fetches.asked(began)
        report.revocations = self.consumers[0].revocations - revocations
        self.nursery.steer()
        for flood in self.floods:
            flood.in_flight_max = 0
            report.flood_bytes += flood.sent_bytes
            report.flood_refused |= flood.refused

    def _sample_memory(self, report: Report, until: float) -> None:
        while time.monotonic() < until:
            self.nursery.check_alive()
            now = self.nursery.resident_bytes()
            report.memory_peak_bytes = max(report.memory_peak_bytes, now)
            time.sleep(0.05)

    def _start_in_trouble(self, report: Report) -> None:
        self.nursery.kill()
        self.nursery.steer(**report.trouble.faults)
        began = time.monotonic()
        self.nursery.launch()
        while time.monotonic() < began + report.trouble.seconds:
            self.nursery.check_alive()
            if not report.ready_seconds and self.nursery.is_ready():
                report.ready_seconds = time.monotonic() - began
            time.sleep(0.05)
        self.nursery.steer()
        self.nursery.wait_ready(AGAIN_SECONDS)
        report.ready_seconds = report.ready_seconds or time.monotonic() - began

    def _get_on(self, report: Report) -> None:
        """Once the store is well, records are acknowledged again."""
        self.ledger.note("mended")
        began, known = time.monotonic(), len(self.ledger.acked)
        wait_until(
            "an acknowledgement after the store was mended",
            lambda: len(self.ledger.acked) > known,
            AGAIN_SECONDS,
            self.ledger,
        )
        report.again_seconds = time.monotonic() - began
        if self.while_starting:
            self._probe_once(report)
        else:
            self._sample_memory(report, until=time.monotonic() + 0.5)

    def _probe_once(self, report: Report) -> None:
        """What a broker that started in trouble answers now: a fetch, and a group that is new."""
        for probe in (self.fetches, self.pulse):
            with Wire(self.stage.port, probe.name) as wire:
                try:
                    probe.begin(wire)
                    probe.ask(wire)
                except OSError as error:
                    probe.wrong.append(f"{probe.name}: {error!r}")
        report.wrong = [*self.fetches.wrong, *self.pulse.wrong]
