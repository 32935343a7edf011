"""How long the broker waits for a client to send a request, complete it, or read a response.

Pure: the connection passes in what happens and when.
"""

from __future__ import annotations

from enum import Enum

# How long a closing connection may make no progress in sending the last responses.
CLOSING_SECONDS = 10.0

# How long a client may take to close its end once the last response is sent. Several round trips.
LINGER_SECONDS = 1.0

# The interval over which the rate of a large request is measured.
RATE_SECONDS = 0.5


class Waiting(Enum):
    """What the broker waits for the client to do."""

    NOTHING = "nothing"
    """The client waits for the broker."""
    A_REQUEST = "a request"
    REST_OF_REQUEST = "the rest of a request"
    READ_RESPONSES = "read responses"
    READ_LAST_RESPONSES = "read the last responses"
    """The connection is closing."""
    CLOSE = "close"
    """The last response is sent."""


class ClientTimeouts:
    """When one client last did what the broker waits for."""

    __slots__ = (
        "_measured_at",
        "_measured_bytes",
        "_moved_at",
        "_unsent_bytes",
        "active_at",
        "request_since",
    )

    def __init__(self, now: float) -> None:
        self.active_at = now  # when the client last sent bytes
        self.request_since = now  # when the first bytes of the current request arrived
        self._moved_at = now
        self._unsent_bytes = 0
        self._measured_at = 0.0  # when `_measured_bytes` of the request had arrived
        self._measured_bytes = 0

    def saw_unsent(self, count: int, now: float) -> bool:
        """Note how many bytes are still unsent. Returns whether the number has changed."""
        if count == self._unsent_bytes:
            return False
        self._unsent_bytes, self._moved_at = count, now
        return True

    def is_too_slow(self, received_bytes: int, now: float, bytes_per_second: float) -> bool:
        """Whether the current request arrives more slowly than this.

        The rate is measured over `RATE_SECONDS`, from the first call for a request on.
        """
        seconds = now - self._measured_at
        is_measured = self._measured_at >= self.request_since
        if is_measured and seconds < RATE_SECONDS:
            return False
        arrived = received_bytes - self._measured_bytes
        self._measured_at, self._measured_bytes = now, received_bytes
        return is_measured and arrived < bytes_per_second * seconds

    def is_over(self, waiting: Waiting, now: float, idle_seconds: float) -> bool:
        """Whether the broker has waited for this too long."""
        if waiting is Waiting.NOTHING:
            return False
        if waiting is Waiting.READ_LAST_RESPONSES:
            return now - max(self._moved_at, self.active_at) > CLOSING_SECONDS
        if waiting is Waiting.CLOSE:
            return now - max(self._moved_at, self.active_at) > LINGER_SECONDS
        if waiting is Waiting.READ_RESPONSES:
            return now - self._moved_at > idle_seconds
        if waiting is Waiting.REST_OF_REQUEST:
            return now - self.request_since > idle_seconds
        return now - self.active_at > idle_seconds
