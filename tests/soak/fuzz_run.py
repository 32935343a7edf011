"""Bad frames by the million, over many connections at once, while good clients are watched.

Frames go out in bursts, pipelined. A burst ends with a question whose answer tells that the broker
is through with it, or with a frame that is expected to close the connection. So the broker is
always busy and never flooded, and next to no frame is sent in vain.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import string
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from soak.mutations import FETCH, Fate, Fuzz, Fuzzed

CONNECTIONS = 48
BURST_FRAMES = 40
FETCHES_IN_A_BURST = 3
# A burst that is not through by then is left to itself: something in it waits.
PATIENCE_SECONDS = 0.3
_MARK = b"\x7e\xed\xfa\xce"
_QUESTION = struct.pack(">ihh", 10, 18, 0) + _MARK + struct.pack(">h", -1)
_READ_BYTES = 1 << 18


class Burst:
    """Frames for one connection, and how to tell that the broker is through with them."""

    def __init__(self, fuzz: Fuzz, left: list[Fuzzed]) -> None:
        frames: list[Fuzzed] = []
        fetches = 0
        while len(frames) < BURST_FRAMES:
            frame = left.pop() if left else fuzz.next()
            if frame.api_key == FETCH:
                fetches += 1
                if fetches > FETCHES_IN_A_BURST:
                    left.append(frame)
                    break
            frames.append(frame)
            if frame.fate is not Fate.ANSWERS:
                break
        self.apis = Counter(frame.api_key for frame in frames)
        self.count = len(frames)
        self.ending = frames[-1].fate if frames else Fate.ANSWERS
        question = _QUESTION if self.ending is Fate.ANSWERS else b""
        self.data = b"".join([frame.data for frame in frames]) + question


@dataclass
class _Slot:
    link: socket.socket
    burst: Burst
    sent_at: float
    tail: bytes = b""


@dataclass
class Tally:
    """What was sent."""

    frames: int = 0
    connections: int = 0
    left_waiting: int = 0
    apis: Counter[int] = field(default_factory=Counter)


class Sender:
    """Keeps a number of connections busy with bursts."""

    def __init__(self, port: int, fuzz: Fuzz, seed: int) -> None:
        self._port = port
        self._fuzz = fuzz
        self._chance = random.Random(seed)
        self._left: list[Fuzzed] = []
        self._poll = select.epoll()
        self._by_number: dict[int, _Slot] = {}
        self._swept_at = time.monotonic()
        self.tally = Tally()

    def send(self, frames: int) -> None:
        """Send so many more, and wait until the broker is through with them."""
        goal = self.tally.frames + frames
        while self.tally.frames < goal:
            while len(self._by_number) < CONNECTIONS:
                self._begin(self._connected())
            self._turn()
        until = time.monotonic() + 5 * PATIENCE_SECONDS
        while self._by_number and time.monotonic() < until:
            self._turn(again=False)
        for slot in list(self._by_number.values()):
            self._end(slot)

    def close(self) -> None:
        for slot in list(self._by_number.values()):
            self._end(slot)
        self._poll.close()

    def _connected(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self._port), 10)
        link.setblocking(False)
        self._poll.register(link, select.EPOLLIN)
        self.tally.connections += 1
        return link

    def _begin(self, link: socket.socket) -> None:
        burst = Burst(self._fuzz, self._left)
        self.tally.frames += burst.count
        self.tally.apis += burst.apis
        slot = self._by_number[link.fileno()] = _Slot(link, burst, time.monotonic())
        try:
            sent = link.send(burst.data)
        except OSError:
            self._end(slot)
            return
        if sent < len(burst.data):  # the broker does not read: it is busy with what it has
            self.tally.left_waiting += 1

    def _turn(self, *, again: bool = True) -> None:
        for number, _ in self._poll.poll(0.02):
            slot = self._by_number[number]
            try:
                data = slot.link.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._end(slot)
            elif slot.burst.ending is Fate.ANSWERS and _MARK in slot.tail + data:
                if again:
                    self._begin(slot.link)
                else:
                    self._end(slot)
            else:
                slot.tail = data[-8:]
        now = time.monotonic()
        if now - self._swept_at > PATIENCE_SECONDS / 4:
            self._swept_at = now
            self._sweep(now - PATIENCE_SECONDS)

    def _sweep(self, before: float) -> None:
        for slot in list(self._by_number.values()):
            if slot.sent_at < before:
                self.tally.left_waiting += slot.burst.ending is Fate.ANSWERS
                self._end(slot)

    def _end(self, slot: _Slot) -> None:
        self._poll.unregister(slot.link)
        del self._by_number[slot.link.fileno()]
        if self._chance.random() < 0.2:  # without a good-bye
            slot.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        slot.link.close()


# -- the good clients --------------------------------------------------------------------------


class GoodClients:
    """A producer and a member of a group that must not notice anything. Use as `with`."""

    def __init__(self, bootstrap: str, seed: int, per_second: float = 50.0) -> None:
        chance = random.Random(seed)
        # No frame of the corpus has it, and no mutation hits sixteen letters by chance.
        self.topic = "".join(chance.choices(string.ascii_uppercase, k=16))
        self._bootstrap = bootstrap
        self._pause_seconds = 1 / per_second
        self._stop = threading.Event()
        self.sent: list[bytes] = []
        self.failures: list[str] = []
        self.got: list[bytes] = []
        self.assignments = 0
        self.slowest_seconds = 0.0
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> GoodClients:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(30)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End both; the consumer first reads all that was sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.failures.append(f"{thread} does not end")

    def _guarded(self, work: object) -> None:
        try:
            assert callable(work)
            work()
        except Exception as failure:
            self.failures.append(repr(failure))

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        while not self._stop.is_set():
            value = b"record %d" % len(self.sent)
            self.sent.append(value)
            began = time.monotonic()
            producer.produce(self.topic, value, on_delivery=self._delivered)
            if producer.flush(30):
                self.failures.append(f"{value!r} was not answered within 30 s")
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self._stop.wait(self._pause_seconds)

    def _delivered(self, error: object, message: object) -> None:
        del message
        if error is not None:
            self.failures.append(str(error))

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"good-{self.topic}",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic], on_assign=self._assigned)
        try:
            for value in self._values(consumer):
                self.got.append(value)
        finally:
            consumer.close()

    def _values(self, consumer: Consumer) -> Iterator[bytes]:
        ends_at = float("inf")
        while time.monotonic() < ends_at:
            if self._stop.is_set():
                if len(self.got) >= len(self.sent):
                    return
                ends_at = min(ends_at, time.monotonic() + 20)
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                yield message.value() or b""
            else:
                self.failures.append(str(message.error()))

    def _assigned(self, consumer: Consumer, partitions: object) -> None:
        del consumer, partitions
        self.assignments += 1


def check_good_clients(good: GoodClients) -> None:
    """They got what they sent, once and in order, and nobody took the group from them."""
    assert good.failures == []
    assert good.sent
    assert good.got == good.sent
    assert good.assignments == 1, "the group was rebalanced: its heartbeats were not answered"


@contextlib.contextmanager
def sending(port: int, fuzz: Fuzz, seed: int) -> Iterator[Sender]:
    sender = Sender(port, fuzz, seed)
    try:
        yield sender
    finally:
        sender.close()
