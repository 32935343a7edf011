"""Taking partitions over: winning them in the cluster log, recovering them, leading them.

Each partition is recovered by one take-over at a time: two would give its offsets out twice.
Take-overs of different partitions run side by side. What cannot be recovered, or only slowly, keeps
nothing else from being led.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.own_stream import OwnStream
from neve.cluster.recovery import raise_first, recover
from neve.cluster.state import NO_LEADER, ClusterState, PartitionState, Topic
from neve.cluster.stream_rollups import StreamRollups
from neve.errors import NeveError
from neve.log.partition import PartitionLog
from neve.log.producers import ProducerMemory
from neve.log.wal.writer import WalWriter
from neve.serving.logs import event
from neve.settings import Settings
from neve.store.port import Store

_log = logging.getLogger(__name__)

# How often a take-over looks again because a stream that it could not read is needed no more.
TAKE_OVERS_MAX = 5

# A topic's id and the number of one of its partitions.
PartitionKey = tuple[str, int]


class Takeover:
    """Takes partitions over for one node. `on_led` is called with logs that are led from now on."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        *,
        led: LedPartitions,
        rollups: StreamRollups,
        own: OwnStream,
        writer: WalWriter,
        memory: runtime.MemoryBudget,
        on_led: Callable[[Sequence[PartitionLog]], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._rollups = rollups
        self._own = own
        self._writer = writer
        self._producer_memory = ProducerMemory(
            memory.state("producers", settings.producers.memory_bytes)
        )
        self._on_led = on_led
        self._taking: dict[
            PartitionKey, asyncio.Event
        ] = {}  # by partition: the end of its take-over
        self._looked: ClusterState | None = None  # in which nothing was left to lead
        self.sealed: dict[int, int] = {}  # streams that we ended, and where

    def is_taking(self, topic_id: str) -> bool:
        """Whether a take-over runs that may write objects of this topic."""
        return any(taken == topic_id for taken, _ in self._taking)

    async def lead(self, topics: Sequence[str] | None = None) -> None:
        """Take over all partitions, or all of these topics, that we do not lead yet.

        Every other process is declared dead: this node leads everything. Raises the first failure
        when all that can be led is led.
        """
        self._check_that_we_write()
        state = await self._cluster.refresh()
        for incarnation in sorted(key for key, row in state.brokers.items() if row.live):
            if incarnation != self._writer.incarnation:
                ended = {"incarnation": incarnation, "node": state.brokers[incarnation].node_id}
                event(_log, logging.INFO, "taking over from another process", **ended)
                await self._cluster.expire(incarnation, successor=self._writer.incarnation)
        state = self._cluster.state
        names = [topic.name for topic in state.topics.values()] if topics is None else topics
        wanted: list[PartitionKey] = []
        for name in names:
            topic = state.topic(name)
            if topic is None:
                raise NoTopicError(f"there is no topic {name!r}")
            wanted += [(topic.topic_id, number) for number in range(len(topic.partitions))]
        failures = await self._lead(wanted)
        with contextlib.suppress(NeveError):
            await self._rollups.sweep()  # tending tries again
        raise_first(list(failures.values()))

    async def lead_created(self, topic: Topic, created: Collection[int]) -> None:
        """Lead a topic of which this node has just created these partitions.

        Under their first epoch no process can have written to them, so there is nothing to recover.
        The topic's other partitions are left to their leaders, or to `lead_left`.
        """
        if not created:
            return
        self._check_that_we_write()
        rows = [(topic.topic_id, number) for number in created]
        raise_first(list((await self._lead(rows, created=rows)).values()))

    async def lead_left(
        self, wanted: Sequence[PartitionKey] | None = None
    ) -> Mapping[PartitionKey, NeveError]:
        """Lead what has no leader, or is ours and not served yet: of these partitions, or of all.

        Returns why partitions cannot be led yet.
        """
        self._check_that_we_write()
        if wanted is None:
            await self._cluster.refresh()
            wanted = self.left()
        return await self._lead(wanted)

    def left(self) -> list[PartitionKey]:
        """Partitions without a leader, and ours that are neither served nor being recovered.

        Each state of the cluster in which there are none is searched once.
        """
        state = self._cluster.state
        if self._looked is state:
            return []
        own = self._writer.incarnation
        found = [
            (topic.topic_id, number)
            for topic in state.topics.values()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == NO_LEADER
            or (partition.leader == own and (topic.id_bytes, number) not in self._led.partitions)
        ]
        if not found:
            self._looked = state
        return [row for row in found if row not in self._taking]

    def _check_that_we_write(self) -> None:
        if self._writer.ended is not None:
            raise self._writer.ended

    async def _lead(
        self, wanted: Sequence[PartitionKey], created: Collection[PartitionKey] = ()
    ) -> dict[PartitionKey, NeveError]:
        await self._cluster.lead(self._writer.incarnation, wanted)
        while busy := [self._taking[row] for row in wanted if row in self._taking]:
            await busy[0].wait()
        failures: dict[PartitionKey, NeveError] = {}
        with self._taken(wanted):
            for _ in range(TAKE_OVERS_MAX):
                failures = await self._take_over(wanted, frozenset(created))
                if not failures or not await self._streams_changed():
                    break
        return failures

    @contextlib.contextmanager
    def _taken(self, wanted: Iterable[PartitionKey]) -> Iterator[None]:
        """Keep other take-overs from these partitions, each until it is led."""
        rows = {row: asyncio.Event() for row in wanted}
        self._taking.update(rows)
        try:
            yield
        finally:
            for row, over in rows.items():
                if self._taking.get(row) is over:
                    del self._taking[row]
                over.set()

    async def _streams_changed(self) -> bool:
        """Whether other streams are needed now: one that was retired as we read looks damaged."""
        before = self._cluster.state.streams()
        return (await self._cluster.refresh()).streams() != before

    async def _take_over(
        self, wanted: Sequence[PartitionKey], created: Collection[PartitionKey]
    ) -> dict[PartitionKey, NeveError]:
        """Recover what is ours and not led yet. Returns why partitions could not be recovered."""
        state = self._cluster.state
        taken = self._logs(state, wanted)
        # Where we created a partition and lead it under its first epoch, its log is empty.
        fresh = [
            log for row, (log, partition) in taken.items() if row in created and not partition.epoch
        ]
        self._add(fresh)
        known = set(fresh)
        old = [(log, partition) for log, partition in taken.values() if log not in known]
        if not old:
            return {}
        began = runtime.monotonic()
        recovered = await recover(
            self._store,
            self._writer.incarnation,
            state.brokers,
            old,
            prefetch=self._settings.prefetch,
            keep=self._own.keep,
            on_recovered=self._add,
        )
        self.sealed.update(recovered.ends)
        self._rollups.unswept.update(recovered.ends)
        self._check_that_we_write()  # or we were fenced while we recovered
        event(
            _log,
            logging.INFO,
            "partitions recovered",
            partitions=len(old) - len(recovered.failed),
            failed=len(recovered.failed),
            tail_bytes=sum(log.tail_bytes for log, _ in old),
            sealed_streams=len(recovered.ends),
            seconds=round(runtime.monotonic() - began, 3),
        )
        return {
            row: recovered.failed[log] for row, (log, _) in taken.items() if log in recovered.failed
        }

    def _logs(
        self, state: ClusterState, wanted: Sequence[PartitionKey]
    ) -> dict[PartitionKey, tuple[PartitionLog, PartitionState]]:
        """A log for each of these partitions that is ours and not led yet."""
        logs: dict[PartitionKey, tuple[PartitionLog, PartitionState]] = {}
        own = self._writer.incarnation
        for topic_id, rows in itertools.groupby(wanted, key=lambda row: row[0]):
            topic = state.topics.get(topic_id)
            if topic is None:
                continue
            segment = self._led.segment_settings(topic)
            for row in rows:
                number = row[1]
                partition = topic.partitions[number]
                if partition.leader != own or (topic.id_bytes, number) in self._led.partitions:
                    continue
                log = PartitionLog(
                    self._store,
                    self._writer,
                    segment,
                    topic=topic.name,
                    topic_id=topic.id_bytes,
                    partition=number,
                    epoch=partition.epoch,
                    resolve=self._rollups.resolve,
                    producers=self._settings.producers,
                    producer_memory=self._producer_memory,
                )
                logs[row] = (log, partition)
        return logs

    def _add(self, logs: Sequence[PartitionLog]) -> None:
        """Lead these logs from now on, unless we were fenced or their topic was deleted."""
        if self._writer.ended is not None:
            return
        for topic_id, group in itertools.groupby(logs, key=lambda log: log.topic_id):
            topic = self._cluster.state.topic_by_id(topic_id)
            if topic is not None:
                rows = list(group)
                self._led.add(topic, rows)
                self._on_led(rows)
        for log in logs:
            over = self._taking.pop((log.topic_id.hex(), log.partition), None)
            if over is not None:
                over.set()
