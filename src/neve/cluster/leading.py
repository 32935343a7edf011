"""Taking partitions over: winning them in the cluster log, recovering them, leading them.

Within a node one take-over runs at a time: two would each recover the same partition, and give its
offsets out twice. What cannot be recovered keeps nothing else from being led.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence

from neve.cluster.led import Led
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.own_stream import OwnStream
from neve.cluster.recovery import raise_first, recover
from neve.cluster.rolling import Rolling
from neve.cluster.state import ClusterState, PartitionState, Topic
from neve.errors import NeveError
from neve.log.partition import PartitionLog
from neve.log.wal.writer import WalWriter
from neve.settings import Settings
from neve.store.port import Store

# How often a take-over looks again because a stream that it could not read is needed no more.
TAKE_OVERS_MAX = 5

Wanted = tuple[str, int]


class Leading:
    """Takes partitions over for one node. `on_led` is told of each log that is led from now on."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        *,
        led: Led,
        rolling: Rolling,
        own: OwnStream,
        writer: WalWriter,
        on_led: Callable[[Sequence[PartitionLog]], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._rolling = rolling
        self._own = own
        self._writer = writer
        self._on_led = on_led
        self._one_at_a_time = asyncio.Lock()
        self._created: set[str] = set()
        self._looked: ClusterState | None = None  # in which nothing was left to lead
        self.sealed: dict[int, int] = {}  # streams that we ended, and where

    @property
    def is_busy(self) -> bool:
        """Whether partitions are being taken over: that may write objects of theirs."""
        return self._one_at_a_time.locked()

    async def lead(self, topics: Sequence[str] | None = None) -> None:
        """Take over all partitions of these topics, or of every topic, that we do not lead yet."""
        async with self._one_at_a_time:
            state = await self._begin()
            names = [topic.name for topic in state.topics.values()] if topics is None else topics
            wanted: list[Wanted] = []
            for name in names:
                topic = state.topic(name)
                if topic is None:
                    raise NoTopicError(f"there is no topic {name!r}")
                wanted += [
                    (topic.topic_id, number)
                    for number in range(len(topic.partitions))
                    if (topic.id_bytes, number) not in self._led.partitions
                ]
            await self._lead(wanted)

    async def lead_created(self, topic: Topic) -> None:
        """Lead what this node has just created of a topic: there is nothing to recover."""
        async with self._one_at_a_time:
            self._check_that_we_write()
            self._created.add(topic.topic_id)
            try:
                wanted = [(topic.topic_id, at) for at in range(len(topic.partitions))]
                await self._lead(wanted, unled_only=True)
            finally:
                self._created.discard(topic.topic_id)

    async def lead_left(self) -> None:
        """Lead what nobody ever led, and what is ours and could not be recovered before."""
        async with self._one_at_a_time:
            await self._begin()
            await self._lead(self.left(), unled_only=True)

    def has_left(self) -> bool:
        """Whether `lead_left` would find anything. Each state is walked through once."""
        state = self._cluster.state
        if self._looked is state:
            return False
        if self.left():
            return True
        self._looked = state
        return False

    def left(self) -> list[Wanted]:
        """Partitions that nobody leads, and ours that we do not serve, as far as we know."""
        own = self._writer.incarnation
        return [
            (topic.topic_id, number)
            for topic in self._cluster.state.topics.values()
            for number, partition in enumerate(topic.partitions)
            if partition.epoch < 0
            or (partition.leader == own and (topic.id_bytes, number) not in self._led.partitions)
        ]

    def _check_that_we_write(self) -> None:
        if self._writer.ended is not None:
            raise self._writer.ended

    async def _begin(self) -> ClusterState:
        self._check_that_we_write()
        return await self._cluster.refresh()

    async def _lead(self, wanted: Sequence[Wanted], *, unled_only: bool = False) -> None:
        await self._cluster.lead(self._writer.incarnation, wanted, unled_only=unled_only)
        failures: list[NeveError] = []
        try:
            for _ in range(TAKE_OVERS_MAX):
                failures = await self._take_over(wanted)
                if not failures or not await self._streams_changed():
                    break
        finally:
            with contextlib.suppress(NeveError):
                await self._rolling.sweep()  # tending tries again
        raise_first(failures)

    async def _streams_changed(self) -> bool:
        """Whether other streams are needed now: one that was retired as we read looks damaged."""
        before = self._cluster.state.streams()
        return (await self._cluster.refresh()).streams() != before

    async def _take_over(self, wanted: Sequence[Wanted]) -> list[NeveError]:
        """Recover what is ours and not led yet; why what is left could not be."""
        state = self._cluster.state
        taken = self._taken(state, wanted)
        if not taken:
            return []
        # What we created and lead under its first epoch, nobody can have written anything of.
        old = [
            (log, partition)
            for topic, log, partition in taken
            if topic.topic_id not in self._created or partition.epoch > 0
        ]
        failed: dict[PartitionLog, NeveError] = {}
        if old:
            recovered = await recover(
                self._store,
                self._writer.incarnation,
                state.brokers,
                old,
                prefetch=self._settings.prefetch,
                keep=self._own.keep,
            )
            self.sealed.update(recovered.ends)
            self._rolling.unswept.update(recovered.ends)
            failed.update(recovered.failed)
        self._check_that_we_write()  # or we were fenced while we recovered
        self._add([(topic, log) for topic, log, _ in taken if log not in failed])
        return list(failed.values())

    def _taken(
        self, state: ClusterState, wanted: Sequence[Wanted]
    ) -> list[tuple[Topic, PartitionLog, PartitionState]]:
        taken = []
        own = self._writer.incarnation
        for topic_id, rows in itertools.groupby(wanted, key=lambda row: row[0]):
            topic = state.topics.get(topic_id)
            if topic is None:
                continue
            segment = self._led.segment_settings(topic)
            for _, number in rows:
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
                    resolve=self._rolling.resolve,
                    producers=self._settings.producers,
                )
                taken.append((topic, log, partition))
        return taken

    def _add(self, rows: Sequence[tuple[Topic, PartitionLog]]) -> None:
        topics = self._cluster.state.topics
        for topic_id, group in itertools.groupby(rows, key=lambda row: row[0].topic_id):
            topic = topics.get(topic_id)
            if topic is not None:  # else it was deleted while we recovered
                logs = [log for _, log in group]
                self._led.add(topic, logs)
                self._on_led(logs)
