"""Whether this broker still leads, for answers that a successor could give otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import RefusedError
from neve.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.log.partition import PartitionLog


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

    async def check(self, log: PartitionLog) -> None:
        """Refuse an answer about this partition if another process leads it now."""
        if not await self() or log.closed is not None:
            raise RefusedError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"another process leads {log.name} now: ask for metadata again",
            )
