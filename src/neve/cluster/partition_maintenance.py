"""Background work over all partitions that one process leads.

Each piece of work is done by the partition's leader. A failure of one partition does not stop the
work for the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.maintenance_queues import MaintenanceQueues
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.state import PartitionState
from neve.errors import NeveError


class PartitionMaintenance:
    """Maintains the partitions of one node."""

    def __init__(self, cluster: ClusterLog, led: LedPartitions, queues: MaintenanceQueues) -> None:
        self._cluster = cluster
        self._led = led
        self._queues = queues

    async def _for_each(
        self, work: Callable[[PartitionLeader], Awaitable[object]]
    ) -> list[NeveError]:
        failures: list[NeveError] = []
        for leader in list(self._led.partitions.values()):
            try:
                await work(leader)
            except NeveError as error:
                failures.append(error)
        return failures

    async def tier_due(self) -> list[NeveError]:
        """Tier every partition that is due. Returns the failures."""

        async def tier(leader: PartitionLeader) -> None:
            while leader.log.tiering_due() and await leader.tier():
                pass

        return await self._for_each(tier)

    async def collect_all(self) -> tuple[int, list[NeveError]]:
        """Delete doomed objects of every partition. Returns how many, and the failures."""
        deleted = 0

        async def collect(leader: PartitionLeader) -> None:
            nonlocal deleted
            deleted += await leader.collect()

        failures = await self._for_each(collect)
        return deleted, failures

    # -- earlier streams ---------------------------------------------------------------------

    def has_lost_records(self) -> bool:
        """Whether a WAL store that was given up held untiered records of our partitions."""
        return bool(self._with_losses())

    async def give_up_lost_records(self) -> None:
        """Record untiered records as lost whose streams the cluster log has given up."""
        for leader, partition in self._with_losses():
            await leader.give_up(partition)

    def _with_losses(self) -> list[tuple[PartitionLeader, PartitionState]]:
        state = self._cluster.state
        if not state.abandoned_stores:
            return []
        found: list[tuple[PartitionLeader, PartitionState]] = []
        for leader in self._queues.with_earlier_streams:
            topic = state.topic_by_id(leader.log.topic_id)
            if topic is not None:
                partition = topic.partitions[leader.log.partition]
                if leader.has_lost(partition):
                    found.append((leader, partition))
        return found

    def has_tiered_streams(self) -> bool:
        """Whether `record_tiered_streams` would record anything, known without a request."""
        return bool(self._tiered_streams())

    async def record_tiered_streams(self) -> None:
        """Record in the cluster log which earlier streams our partitions no longer need."""
        parts = self._tiered_streams()
        if parts:
            await self._cluster.tiered(parts)

    def _tiered_streams(self) -> list[tuple[str, int, int]]:
        waiting = self._queues.with_earlier_streams
        parts: list[tuple[str, int, int]] = []
        for leader in list(waiting):
            log = leader.log
            topic = self._cluster.state.topic_by_id(log.topic_id)
            if topic is None:
                waiting.pop(leader, None)
                continue
            if len(topic.partitions[log.partition].streams) < 2:
                if not leader.has_lost(topic.partitions[log.partition]):
                    waiting.pop(leader, None)
                continue
            epoch = leader.unneeded_epoch(topic.partitions[log.partition])
            if epoch is not None:
                parts.append((topic.topic_id, log.partition, epoch))
        return parts
