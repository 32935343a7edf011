"""Producer ids, assigned one by one from blocks that were won in the cluster log."""

from __future__ import annotations

import asyncio

from neve.cluster.log import ClusterLog

# A block costs one number of the cluster log. Ids that a process does not assign are lost with it;
# there are 2**63.
BLOCK_IDS = 1_000


class ProducerIdSource:
    """The ids of one process. Concurrent callers win one block at a time."""

    def __init__(self, cluster: ClusterLog, incarnation: int) -> None:
        self._cluster = cluster
        self._incarnation = incarnation
        self._winning = asyncio.Lock()
        self._next = self._end = 0

    async def next(self) -> int:
        """An id that is assigned once in the life of the cluster."""
        while self._next == self._end:
            async with self._winning:
                if self._next == self._end:
                    block = await self._cluster.producer_ids(self._incarnation, BLOCK_IDS)
                    self._next, self._end = block.first, block.end
        self._next += 1
        return self._next - 1
