"""The attacks on a running broker: their interface and their targets.

An attack is a function that runs in a separate process (`soak.attacker`), so that its CPU time and
memory do not distort the measurements of other clients.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from soak.wire import Wire

CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Target:
    """The broker under attack, and until when."""

    port: int
    ends_at: float

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return not self.seconds_left

    def wire(self, name: str = "attacker", timeout_seconds: float = 30.0) -> Wire:
        return Wire(self.port, name, timeout_seconds=timeout_seconds)

    @contextlib.contextmanager
    def deaf(self, receive_buffer_bytes: int = 4096) -> Iterator[socket.socket]:
        """A connection that takes little into its receive buffer, and reads nothing of it."""
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            link.settimeout(CONNECT_SECONDS)
            link.connect(("127.0.0.1", self.port))
            link.setblocking(False)
            yield link

    def wait(self) -> None:
        """Hold what was taken until the attack is over."""
        time.sleep(self.seconds_left)


def nothing(_: Target) -> None:
    """An attack that needs no preparation."""


@dataclass(frozen=True)
class Attack:
    """One way to harm a broker. `run` returns when its target's time is over.

    `prepare` runs before, while nothing is measured. `settings` are the broker's, with _ for dots.
    """

    name: str
    run: Callable[[Target], None]
    prepare: Callable[[Target], None] = nothing
    settings: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def send_what_fits(link: socket.socket, data: bytes) -> None:
    """Send as much as a connection takes without waiting."""
    with contextlib.suppress(BlockingIOError):
        link.sendall(data)
