"""Release of partitions: the planned move of a leadership to another live process.

The owner stops a partition: it appends nothing more and answers nothing that must be current. Once
the last WAL object with the partition is committed, it and every number before it, the owner
proposes the release, many partitions in one record. Until the number of that record is decided, the
partition stays stopped: resumed earlier, the owner could acknowledge records that its successor
does not know of. It is resumed only if the decided state still names the owner at that epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.records import Handover, Release
from neve.cluster.state import ClusterState, PartitionKey, is_live
from neve.errors import NeveError
from neve.log.wal.writer import WalWriter
from neve.serving.logs import event

_log = logging.getLogger(__name__)

# How long a stopped partition waits for its last commit before it is served again.
COMMIT_SECONDS_MAX = 5.0
RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX = 100, 5_000


class PartitionReleases:
    """Releases the partitions of one process."""

    def __init__(self, cluster: ClusterLog, led: LedPartitions, writer: WalWriter) -> None:
        self._cluster = cluster
        self._led = led
        self._writer = writer
        # Rows of requests whose outcome is not decided yet. Those that arrive while a record is
        # being decided go into the next one together.
        self._undecided: dict[PartitionKey, Handover] = {}
        self._deciding = asyncio.Lock()
        self._is_open = False  # whether a number that was proposed may still be filled
        self.released = 0  # partitions so far

    async def release(self, wanted: Mapping[PartitionKey, int]) -> set[PartitionKey]:
        """Release each of these partitions to the process with the given incarnation.

        Returns those that were released. The others are served again, or were lost meanwhile:
        partitions that this process does not lead, is releasing already, or could not commit in
        time, and those whose successor is not live.
        """
        stopped: dict[PartitionKey, PartitionLeader] = {}
        for row in wanted:
            leader = self._led.serving.get((bytes.fromhex(row[0]), row[1]))
            if leader is not None:
                self._led.stop(leader)
                stopped[row] = leader
        if not stopped:
            return set()
        if not await self._committed():
            self._resume(stopped)
            return set()
        end = self._writer.committed_end
        epochs = {row: leader.log.epoch for row, leader in stopped.items()}
        handovers = [
            Handover(
                topic_id=row[0],
                partition=row[1],
                epoch=epochs[row],
                end=end,
                end_offset=leader.log.high_watermark,
                successor=wanted[row],
            )
            for row, leader in stopped.items()
        ]
        await self._decide(handovers)
        self._resume(stopped)
        released = {row for row in stopped if not self._leads(row, epochs[row])}
        self.released += len(released)
        about = {"partitions": len(released), "of": len(stopped), "end": end}
        event(_log, logging.INFO, "partitions released", **about)
        return released

    async def _committed(self) -> bool:
        """Wait until everything that was appended is committed. Returns False if that fails."""
        try:
            async with runtime.deadline(COMMIT_SECONDS_MAX):
                await self._writer.flush()
        except (NeveError, TimeoutError):
            return False
        return self._writer.ended is None

    async def _decide(self, handovers: list[Handover]) -> None:
        """Return once these rows are decided, in a record with those of other requests.

        A request that is cancelled leaves its rows to the next one.
        """
        rows = {(row.topic_id, row.partition): row for row in handovers}
        self._undecided |= rows
        async with self._deciding:
            if any(self._undecided.get(key) is row for key, row in rows.items()):
                batch = dict(self._undecided)
                await self._propose(list(batch.values()))
                for key, row in batch.items():
                    if self._undecided[key] is row:
                        del self._undecided[key]

    async def _propose(self, handovers: list[Handover]) -> None:
        """Propose a release until its number is decided, however long the store takes.

        A proposal that failed may still land. Its number must then be filled, by an empty release
        if nothing is left to release.
        """

        def derive(state: ClusterState) -> Release | None:
            rows = tuple(row for row in handovers if self._applies(state, row))
            return Release(rows) if rows or is_open else None

        backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        while self._writer.ended is None:
            is_open, self._is_open = self._is_open, True
            try:
                await self._cluster.propose(derive)
            except NeveError:  # whatever it is: an attempt before it may still land
                await backoff.pause()
            else:
                self._is_open = False
                return

    def _applies(self, state: ClusterState, row: Handover) -> bool:
        topic = state.topics.get(row.topic_id)
        if topic is None or not is_live(state.brokers, row.successor):
            return False
        partition = topic.partitions[row.partition]
        return partition.leader == self._writer.incarnation and partition.epoch == row.epoch

    def _leads(self, row: PartitionKey, epoch: int) -> bool:
        topic = self._cluster.state.topics.get(row[0])
        if topic is None:
            return False
        partition = topic.partitions[row[1]]
        return partition.leader == self._writer.incarnation and partition.epoch == epoch

    def _resume(self, stopped: Mapping[PartitionKey, PartitionLeader]) -> None:
        """Serve the partitions again that were not lost: the cluster log closes those that were."""
        for leader in stopped.values():
            self._led.resume(leader)
