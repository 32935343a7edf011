"""What all clients of a soak run share: where the broker is, when to stop, how fast to go."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from soak.ledger import Ledger, Place


@dataclass
class Stage:
    """One run as its clients see it."""

    port: int
    ledger: Ledger
    places: list[Place]
    value_bytes_max: int
    more_ports: tuple[int, ...] = ()
    """Where further brokers of the cluster are."""
    producing: threading.Event = field(default_factory=threading.Event)
    """Set as long as producers make new records; cleared, they finish what they have begun."""
    running: threading.Event = field(default_factory=threading.Event)
    """Set as long as clients run at all."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in (self.port, *self.more_ports))

    @property
    def ended(self) -> bool:
        return not self.running.is_set()


class Client(threading.Thread):
    """One client in a thread of its own. What goes wrong in it is a violation, never lost."""

    def __init__(self, stage: Stage, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.stage = stage
        self.ledger = stage.ledger
        self.chance = random.Random(f"{seed} {name}")

    def run(self) -> None:
        try:
            self.work()
        except Exception as failure:
            self.ledger.violated(f"client {self.name} failed: {failure!r}")

    def work(self) -> None:
        raise NotImplementedError


class CatchUpThrottle:
    """So many a second, without catching up on time that was lost."""

    def __init__(self, per_second: float) -> None:
        self._gap_seconds = 1 / per_second
        self._next = time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = max(self._next + self._gap_seconds, now - self._gap_seconds)
        return True


def wait_until(what: str, is_so: Callable[[], bool], seconds: float, ledger: Ledger) -> None:
    """Wait for something that must come; a violation where it does not."""
    until = time.monotonic() + seconds
    while not is_so() and ledger.violation is None:
        if time.monotonic() > until:
            ledger.violated(f"{what} did not happen within {seconds} s")
            return
        time.sleep(0.02)
