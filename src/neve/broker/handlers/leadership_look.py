"""Whether this broker still leads, for answers that a successor could give otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.errors import NotLeaderError

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.partition_leader import PartitionLeader


class LeadershipLook:
    """One look for all partitions or groups of a request: it begins after the request came."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answer: bool | None = None

    async def __call__(self) -> bool:
        """Raises UnavailableError if the store does not answer in time."""
        if self._answer is None:
            self._answer = await self._broker.still_leading()
        return self._answer

    async def check(self, leader: PartitionLeader) -> None:
        """Raise NotLeaderError if another process leads this partition now."""
        if not await self() or not leader.is_leading:
            raise NotLeaderError(f"another process leads {leader.name} now: ask for metadata again")
