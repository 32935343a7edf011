"""Which led partitions have background work due, and when.

Idle partitions are in no queue, so that a broker with thousands of them does nothing. The leaders
of partitions schedule themselves here; the background loops wait here and run what is due.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.errors import UnavailableError
from neve.log.partition import PartitionLog
from neve.settings import Settings

if TYPE_CHECKING:
    from neve.cluster.partition_leader import PartitionLeader

T = TypeVar("T")


class MaintenanceQueues:
    """The background work of all partitions that one process leads, and its bounds.

    `on_tiered` is called after each segment that was written.
    """

    def __init__(
        self, settings: Settings, cluster: ClusterLog, *, on_tiered: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._view_age_max = self._run_seconds_max = settings.cluster.purge_delay_ms / 2000
        self._writing: dict[bytes, int] = {}  # by topic id: runs that may write its objects
        self._work_due = asyncio.Event()
        self.segment_ms = settings.segment.ms
        self.retention_check_ms = settings.maintenance.retention_check_ms
        self.memory = runtime.MemoryShare(
            "segments-being-built", settings.maintenance.tiering_memory_bytes
        )
        self.tiering: runtime.DeadlineQueue[PartitionLeader] = runtime.DeadlineQueue()
        self.retention: runtime.DeadlineQueue[PartitionLeader] = runtime.DeadlineQueue()
        self.collectable: dict[PartitionLeader, None] = {}
        self.with_earlier_streams: dict[PartitionLeader, None] = {}
        self.on_tiered = on_tiered

    def drop(self, leader: PartitionLeader) -> None:
        """Remove a partition from all queues."""
        self.tiering.drop(leader)
        self.retention.drop(leader)
        self.collectable.pop(leader, None)
        self.with_earlier_streams.pop(leader, None)

    # -- waiting for work --------------------------------------------------------------------

    def notify(self) -> None:
        """Wake the background loops: work is due."""
        self._work_due.set()

    async def wait(self, seconds: float) -> None:
        """Wait until `notify` is called, but no longer than `seconds`."""
        self._work_due.clear()
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._work_due.wait()

    # -- bounded runs ------------------------------------------------------------------------

    async def bounded(self, log: PartitionLog, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run work that may write objects of a log's topic.

        Reads the cluster log first if the view of it is older than half of cluster.purge.delay.ms.
        Returns None if the log is closed then. Raises UnavailableError after the other half.
        """
        if runtime.monotonic() - self._cluster.read_at > self._view_age_max:
            await self._cluster.refresh()
        if log.closed is not None:
            return None
        try:
            with self._counted(log.topic_id):
                async with runtime.deadline(self._run_seconds_max):
                    return await work()
        except TimeoutError:
            raise UnavailableError(
                log.manifest.keys.prefix,
                f"it took longer than {self._run_seconds_max} s (half of cluster.purge.delay.ms)",
            ) from None

    @contextlib.contextmanager
    def _counted(self, topic_id: bytes) -> Iterator[None]:
        self._writing[topic_id] = self._writing.get(topic_id, 0) + 1
        try:
            yield
        finally:
            self._writing[topic_id] -= 1
            if not self._writing[topic_id]:
                del self._writing[topic_id]

    def is_writing(self, topic_id: bytes) -> bool:
        """Whether a run may still write objects of this topic."""
        return topic_id in self._writing
