"""The intervals of failure detection, in seconds of the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings import ClusterSettings

# A ping or a refusal counts as recent for this many intervals.
RECENT_INTERVALS = 2
# What one broker reads in the cluster log, the others know this many intervals later: some may have
# to notice first that they hear no positions, and then pings pass the news on.
SPREADING_INTERVALS = 3
# Times are sums of floating-point numbers, and an event loop may run a timer a little early.
ROUNDING_SECONDS = 1e-6


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How often observers ping and look, and how long a silence means death.

    `interval_seconds` lies between two pings, two looks at a heartbeat object, and two heartbeats;
    it is also the time-out of a ping. `grace_seconds` is how long a broker may take to learn from
    the cluster log that it is watched.
    """

    interval_seconds: float
    session_seconds: float
    grace_seconds: float

    @classmethod
    def of(cls, settings: ClusterSettings) -> Timing:
        return cls(
            interval_seconds=settings.heartbeat_ms / 1000,
            session_seconds=settings.session_ms / 1000,
            grace_seconds=(settings.poll_ms + SPREADING_INTERVALS * settings.heartbeat_ms) / 1000,
        )

    @property
    def recent_seconds(self) -> float:
        """How long a ping, a refusal and a verdict count."""
        return RECENT_INTERVALS * self.interval_seconds
