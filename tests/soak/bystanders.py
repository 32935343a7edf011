"""Good clients beside an attack, and how long each of their requests took.

Each is a thread with a connection of its own, which it opens again when it fails.
"""

from __future__ import annotations

import http.client
import threading
import time
from typing import NamedTuple

from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.leave_group import LEAVE_GROUP
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import RunningBroker
from support.hostile import fetch, produce

TOPIC, GROUP = "good", "good-group"
PAUSE_SECONDS = 0.05
ANSWER_SECONDS = 60.0
FETCH_WAIT_MS = 100


class Request(NamedTuple):
    """When a request began, how long it took, and why it failed, if it did."""

    began: float
    seconds: float
    failure: str = ""

    @property
    def ended(self) -> float:
        return self.began + self.seconds


class Bystander(threading.Thread):
    """One good client. `ask` is one request; what it raises is a failure of the broker's.

    `wait_seconds_least` is how long its requests may take, however little others may wait.
    """

    wait_seconds_least = 0.0

    def __init__(self, broker: RunningBroker, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.requests: list[Request] = []
        self._over = threading.Event()

    def open(self) -> None:
        """Connect; it is not open before."""

    def ask(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the connection, if there is one."""

    def run(self) -> None:
        is_open = False
        while not self._over.is_set():
            began, failure = time.monotonic(), ""
            try:
                if not is_open:
                    self.open()
                    is_open = True
                self.ask()
            except Exception as error:
                failure = repr(error)
                is_open = False
                self.close()
            self.requests.append(Request(began, time.monotonic() - began, failure))
            self._over.wait(PAUSE_SECONDS)
        self.close()

    def stop(self) -> None:
        self._over.set()
        self.join(ANSWER_SECONDS)


class _OnWire(Bystander):
    _wire: Wire | None = None

    def open(self) -> None:
        self._wire = Wire(self.broker.port, self.name, timeout_seconds=ANSWER_SECONDS)

    @property
    def wire(self) -> Wire:
        assert self._wire is not None
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class Producer(_OnWire):
    """Produces small batches, each acknowledged."""

    value_bytes = 500

    def ask(self) -> None:
        value = bytes(self.value_bytes)
        row = produce(self.wire, TOPIC, build_batch([Record(0, 1_000, None, value)]))
        assert row.error_code == 0, f"produce: error {row.error_code}"


class LargeProducer(Producer):
    """Produces batches that need room of their own to be received into."""

    value_bytes = 200_000
    wait_seconds_least = 3.0


class Consumer(_OnWire):
    """Reads what the producer produces, from wherever it is."""

    offset = 0

    def ask(self) -> None:
        row = fetch(self.wire, TOPIC, self.offset, max_wait_ms=FETCH_WAIT_MS)
        assert row.error_code == 0, f"fetch: error {row.error_code}"
        self.offset = row.high_watermark


class Member(_OnWire):
    """The only member of a group: heartbeats and commits."""

    member_id, generation = "", -1

    def open(self) -> None:
        super().open()
        if self.generation < 0:
            self._join()

    def _join(self) -> None:
        found = self.wire.call(FIND_COORDINATOR, 2, FIND_COORDINATOR.Request(key=GROUP))
        assert found.error_code == 0, f"find coordinator: error {found.error_code}"
        protocol = JOIN_GROUP.Request.Protocol(name="range", metadata=b"m")
        for _ in range(2):  # the first answer names it
            answer = self.wire.call(
                JOIN_GROUP,
                5,
                JOIN_GROUP.Request(
                    group_id=GROUP,
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[protocol],
                ),
            )
            self.member_id = answer.member_id
            if answer.error_code == 0:
                break
        assert answer.error_code == 0, f"join: error {answer.error_code}"
        self.generation = answer.generation_id
        mine = SYNC_GROUP.Request.Assignment(member_id=self.member_id, assignment=b"a")
        request = SYNC_GROUP.Request(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[mine],
        )
        error = self.wire.call(SYNC_GROUP, 3, request).error_code
        assert error == 0, f"sync: error {error}"

    def ask(self) -> None:
        if len(self.requests) % 2:
            self._commit()
        else:
            self._beat()

    def _beat(self) -> None:
        beat = HEARTBEAT.Request(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id
        )
        error = self.wire.call(HEARTBEAT, 3, beat).error_code
        assert error == 0, f"heartbeat: error {error}"

    def _commit(self) -> None:
        part = OFFSET_COMMIT.Request.Partition(
            partition_index=0, committed_offset=len(self.requests), committed_metadata=""
        )
        commit = OFFSET_COMMIT.Request(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OFFSET_COMMIT.Request.Topic(name=TOPIC, partitions=[part])],
        )
        error = self.wire.call(OFFSET_COMMIT, 7, commit).topics[0].partitions[0].error_code
        assert error == 0, f"commit: error {error}"


class Newcomer(_OnWire):
    """The first member of a new group each time, which leaves again."""

    def ask(self) -> None:
        group, member_id = f"new-{len(self.requests)}", ""
        protocol = JOIN_GROUP.Request.Protocol(name="range", metadata=b"m")
        for _ in range(2):  # the first answer names it
            request = JOIN_GROUP.Request(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = self.wire.call(JOIN_GROUP, 5, request)
            member_id = answer.member_id
        assert answer.error_code == 0, f"join of a new group: error {answer.error_code}"
        leave = LEAVE_GROUP.Request(group_id=group, member_id=member_id)
        error = self.wire.call(LEAVE_GROUP, 2, leave).error_code
        assert error == 0, f"leave: error {error}"


class Probe(Bystander):
    """Asks for health, on a connection of its own each time."""

    def ask(self) -> None:
        host, _, port = self.broker.http.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        finally:
            connection.close()
        assert status == 200, f"/healthz: {status}"


def good_clients(broker: RunningBroker) -> list[Bystander]:
    return [
        Producer(broker, "producer"),
        LargeProducer(broker, "large producer"),
        Consumer(broker, "consumer"),
        Member(broker, "member"),
        Newcomer(broker, "newcomer"),
        Probe(broker, "probe"),
    ]
