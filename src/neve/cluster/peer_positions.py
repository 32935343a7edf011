"""Whether a broker hears from all brokers that it exchanges pings with.

Pings and their answers carry positions in the cluster log. While a broker hears from all of these,
it learns of each new number from them, and need not look into the bucket as often.
"""

from __future__ import annotations

from collections.abc import Iterable


class PeerPositions:
    """When one broker last heard from each of its peers. All times are of one monotonic clock."""

    def __init__(self, recent_seconds: float) -> None:
        self._recent_seconds = recent_seconds
        self._heard_at: dict[int, float] = {}

    def expect(self, peers: Iterable[int]) -> None:
        """Expect pings, or answers, of these brokers and of no others."""
        self._heard_at = {peer: self._heard_at.get(peer, float("-inf")) for peer in peers}

    def heard(self, peer: int, now: float) -> None:
        """Take note of a ping or an answer."""
        if peer in self._heard_at:
            self._heard_at[peer] = now

    def are_recent(self, now: float) -> bool:
        """Whether there are peers, and all of them were heard from lately."""
        oldest = min(self._heard_at.values(), default=float("-inf"))
        return now - oldest <= self._recent_seconds
