"""The port through which brokers reach each other. `neve.broker.peers` implements it over TCP."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from neve.cluster.state import BrokerRegistration, PartitionKey
from neve.errors import NeveError


class PeerError(NeveError):
    """A broker did not answer: no connection, no response in time, or another process answered."""


class PeerRefusedError(PeerError):
    """A broker's host refuses connections: no process listens on its port."""


class PingAnswer(NamedTuple):
    """What a broker answers to a ping.

    `position` is the cluster-log number up to which it has read. It has dropped every topic that
    was deleted below the number `dropped`, no work on them is left, and none will begin.
    """

    position: int
    dropped: int


class PeerLink(Protocol):
    """Messages to other brokers. Each raises PeerError if there is no answer in time."""

    async def ping(
        self,
        target: BrokerRegistration,
        seconds: float,
        *,
        watches: bool = False,
        hears: bool = False,
    ) -> PingAnswer:
        """Ping a broker.

        `watches` says whether this broker watches the target, `hears` whether it got the last
        answer. Raises PeerRefusedError if the target's host refuses connections.
        """

    async def probe(
        self, target: BrokerRegistration, suspect: BrokerRegistration, seconds: float
    ) -> bool:
        """Ask a broker whether a third one refuses its connections."""

    async def release(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        """Ask a broker to release partitions to this one. Returns how many it released."""

    async def pull(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        """Ask a broker to take over partitions that it should lead. Returns how many it did."""

    async def notify(self, target: BrokerRegistration, end: int, seconds: float) -> int:
        """Let a follower know that all numbers of this broker's stream below `end` are committed.

        Returns the number up to which it has read, or -1 if it does not follow the stream yet.
        """

    def announce(self, targets: Collection[BrokerRegistration]) -> None:
        """Ping these brokers soon, without waiting, so that they read the cluster log."""

    def forget(self, live: Collection[int]) -> None:
        """Close the connections to all other processes than these."""
