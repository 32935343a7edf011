"""Who waits for room to receive a large request waits for seconds, however slowly others send."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neve.broker import receive_queue
from neve.broker.buffers import BufferPool
from neve.broker.client_timeouts import RATE_SECONDS, ClientTimeouts
from neve.broker.framing import Scratch
from neve.broker.receive_queue import OVERDUE_SECONDS, RATE_BYTES_PER_SECOND, ReceiveQueue

MIB = 1 << 20


class Sender:
    """A connection that takes room when it is called, and has it until it is done."""

    def __init__(self, name: str, length: int, scratch: Scratch, log: list[str]) -> None:
        self.name, self.length, self.scratch, self.log = name, length, scratch, log
        self.buffer: bytearray | None = None

    def receive_buffer_free(self) -> None:
        self.buffer = self.scratch.begin(self.length)
        assert self.buffer is not None
        self.log.append(self.name)

    def done(self) -> None:
        if self.buffer is not None:
            self.scratch.received(self.buffer)
            self.buffer = None


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 50.0
        monkeypatch.setattr(receive_queue, "runtime", SimpleNamespace(monotonic=lambda: self.now))
        self.scratch = Scratch(BufferPool(0), receiving_bytes_max=4 * MIB)
        self.queue = ReceiveQueue(self.scratch)
        self.admitted: list[str] = []

    def waits(self, name: str, length: int) -> Sender:
        sender = Sender(name, length, self.scratch, self.admitted)
        self.queue.wait(sender, length)
        return sender


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_smallest_is_admitted_first_and_as_many_as_fit(scene: Scene) -> None:
    large = scene.waits("large", 8 * MIB)
    for name, length in (("c", 3 * MIB), ("b", MIB), ("a", MIB // 2)):
        scene.waits(name, length)
    scene.queue.admit()
    assert scene.admitted == ["a", "b"]
    assert len(scene.queue) == 2
    scene.queue.remove(large)
    assert len(scene.queue) == 1


def test_one_that_has_waited_long_is_admitted_before_any_other(scene: Scene) -> None:
    holder = scene.waits("holder", MIB)
    scene.queue.admit()
    scene.waits("large", 8 * MIB)
    scene.now += OVERDUE_SECONDS + 0.1
    scene.waits("small", MIB)
    scene.queue.admit()
    assert scene.admitted == ["holder"]
    assert scene.scratch.begin(MIB) is None, "nor is one that comes only now"
    holder.done()
    scene.queue.admit()
    assert scene.admitted == ["holder", "large"]


def test_those_that_have_waited_long_take_turns_with_smaller_ones(scene: Scene) -> None:
    senders = [scene.waits(f"large {at}", 8 * MIB) for at in range(3)]
    scene.now += OVERDUE_SECONDS + 0.1
    scene.queue.admit()
    senders += [scene.waits(f"small {at}", MIB) for at in range(2)]
    for _ in range(5):
        next(each for each in senders if each.name == scene.admitted[-1]).done()
        scene.queue.admit()
    assert scene.admitted == ["large 0", "small 0", "large 1", "small 1", "large 2"]


def test_the_longer_one_waits_the_faster_others_have_to_send(scene: Scene) -> None:
    assert scene.queue.minimum_rate(scene.now) == 0
    scene.waits("first", MIB)
    assert scene.queue.minimum_rate(scene.now) == RATE_BYTES_PER_SECOND
    assert scene.queue.minimum_rate(scene.now + 3.5) == 8 * RATE_BYTES_PER_SECOND
    assert scene.queue.minimum_rate(scene.now + 1e6) == 256 * RATE_BYTES_PER_SECOND


def test_a_request_is_measured_by_what_it_brings_while_others_wait() -> None:
    timeouts = ClientTimeouts(0.0)
    timeouts.request_since = 10.0
    assert not timeouts.is_too_slow(MIB, 20.0, 1000), "what it did before does not count"
    assert not timeouts.is_too_slow(MIB, 20.0 + RATE_SECONDS / 2, 1000), "too early to say"
    assert not timeouts.is_too_slow(MIB + 500, 20.0 + RATE_SECONDS, 1000)
    assert timeouts.is_too_slow(MIB + 900, 20.0 + 2 * RATE_SECONDS, 1000)
    timeouts.request_since = 30.0
    assert not timeouts.is_too_slow(10, 40.0, 1000), "another request"
    assert timeouts.is_too_slow(20, 40.0 + RATE_SECONDS, 1000)
