"""Take-over of partitions: win them in the cluster log, recover them, lead them.

At most one take-over at a time recovers a partition: two would assign its offsets twice. Take-overs
of different partitions run concurrently. A partition that cannot be recovered, or only slowly, does
not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.own_stream import OwnStream
from neve.cluster.placement import partitions_to_lead, processes_to_expire
from neve.cluster.recovery import raise_first, recover
from neve.cluster.state import NO_LEADER, ClusterState, PartitionKey, PartitionState, Topic
from neve.cluster.stream_rollups import StreamRollups
from neve.errors import FencedError, NeveError
from neve.log.partition import PartitionLog
from neve.log.producers import ProducerMemory
from neve.log.tail_replay import Covering, not_in_memory
from neve.log.wal.writer import WalWriter
from neve.serving.logs import event
from neve.settings import Settings
from neve.store.port import Store

_log = logging.getLogger(__name__)

# Attempts of one take-over, if a stream that it could not read turns out to be retired.
TAKE_OVERS_MAX = 5


class Takeover:
    """Takes partitions over for one node."""

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
        covering: Covering = not_in_memory,
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._rollups = rollups
        self._own = own
        self._writer = writer
        self._covering = covering
        self._producer_memory = ProducerMemory(
            memory.state("producers", settings.producers.memory_bytes)
        )
        self._taking: dict[PartitionKey, asyncio.Event] = {}  # set when the take-over has ended
        self._created: set[PartitionKey] = set()  # for us, and not led yet; never iterated
        self._searched: ClusterState | None = None  # the last state without a partition to lead
        # Topics that have changed since none of their partitions was without a leader or ours to
        # take over.
        self._unsearched: dict[str, None] = dict.fromkeys(cluster.state.topics)
        self.sealed: dict[int, int] = {}  # streams that we ended, and where
        self.recovered = 0  # partitions so far

    def is_taking(self, topic_id: str) -> bool:
        """Whether a take-over runs that may write objects of this topic."""
        return any(taken == topic_id for taken, _ in self._taking)

    async def lead(self, topics: Sequence[str] | None = None) -> None:
        """Lead what this process should lead: see placement.

        Processes of versions that cannot share partitions are expired before. With `topics`, lead
        only partitions of these. A partition that cannot be recovered does not stop the others.
        Raises NoTopicError if a topic does not exist, and the first failure of a partition at the
        end.
        """
        self._check_not_ended()
        own = self._writer.incarnation
        for other in processes_to_expire(await self._cluster.refresh(), own):
            ended = {"incarnation": other.incarnation, "node": other.node_id}
            event(_log, logging.INFO, "taking over from another process", **ended)
            await self._cluster.expire(other.incarnation)
        await self._cluster.raise_level()
        state = self._cluster.state
        chosen = None if topics is None else [_topic(state, name) for name in topics]
        failures = await self._lead(partitions_to_lead(state, own, self._led.partitions, chosen))
        with contextlib.suppress(NeveError):
            await self._rollups.sweep()  # the background loops retry it
        raise_first(list(failures.values()))

    def cluster_changed(self, before: ClusterState, state: ClusterState) -> None:
        """Note which partitions were created with this process as their leader.

        No process can have written to them under their first epoch, so there is nothing to recover.
        """
        own = self._writer.incarnation
        for topic_id, topic in state.topics.items():
            earlier = before.topics.get(topic_id)
            if earlier is topic:
                continue
            self._unsearched[topic_id] = None
            first = 0 if earlier is None else len(earlier.partitions)
            for number in range(first, len(topic.partitions)):
                partition = topic.partitions[number]
                if partition.leader == own and not partition.epoch:
                    self._created.add((topic_id, number))

    async def lead_created(self, topic: Topic, created: Collection[int]) -> None:
        """Lead those partitions that were just created and that this process should lead.

        Other partitions of the topic are not touched: their leaders serve them, or `lead_unled`
        takes them over.
        """
        own = self._writer.incarnation
        wanted = partitions_to_lead(self._cluster.state, own, self._led.partitions, [topic])
        rows = [row for row in wanted if row[1] in created]
        if rows:
            self._check_not_ended()
            raise_first(list((await self._lead(rows)).values()))

    async def lead_unled(
        self, wanted: Sequence[PartitionKey] | None = None
    ) -> Mapping[PartitionKey, NeveError]:
        """Lead those of these partitions, or of all, that `unled` would return.

        Returns the failure of each partition that cannot be led yet.
        """
        self._check_not_ended()
        if wanted is None:
            await self._cluster.refresh()
            wanted = self.unled()
        return await self._lead(wanted)

    def unled(self) -> list[PartitionKey]:
        """Partitions that this node should lead and that are neither served nor being recovered.

        A state of the cluster without any is searched once, and only the topics in which it
        differs from earlier ones.
        """
        state = self._cluster.state
        if self._searched is state:
            return []
        topics = [state.topics[key] for key in self._unsearched if key in state.topics]
        own = self._writer.incarnation
        found = partitions_to_lead(state, own, self._led.partitions, topics)
        wanted = {topic_id for topic_id, _ in found}
        self._unsearched = {
            topic.topic_id: None
            for topic in topics
            if topic.topic_id in wanted or _has_unled(topic)
        }
        if not found:
            self._searched = state
        return [row for row in found if row not in self._taking]

    def _check_not_ended(self) -> None:
        if self._writer.ended is not None:
            raise self._writer.ended

    async def _lead(self, wanted: Sequence[PartitionKey]) -> dict[PartitionKey, NeveError]:
        await self._cluster.lead(self._writer.incarnation, wanted)
        while busy := [self._taking[row] for row in wanted if row in self._taking]:
            await busy[0].wait()
        failures: dict[PartitionKey, NeveError] = {}
        with self._taken(wanted):
            for _ in range(TAKE_OVERS_MAX):
                failures = await self._take_over(wanted)
                if not failures or not await self._streams_changed():
                    break
        return failures

    @contextlib.contextmanager
    def _taken(self, wanted: Iterable[PartitionKey]) -> Iterator[None]:
        """Exclude other take-overs of these partitions, each until it is led."""
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
        """Whether partitions need other streams now. A stream retired meanwhile appears damaged."""
        before = self._cluster.state.streams()
        return (await self._cluster.refresh()).streams() != before

    async def _take_over(self, wanted: Sequence[PartitionKey]) -> dict[PartitionKey, NeveError]:
        """Recover partitions that are ours and not led yet. Returns the failures."""
        state = self._cluster.state
        taken = self._logs(state, wanted)
        # The log of a partition that was created for us, under its first epoch, is empty.
        fresh = [
            log
            for row, (log, partition) in taken.items()
            if row in self._created and not partition.epoch
        ]
        self._created.difference_update(wanted)
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
            covering=self._covering,
            on_recovered=self._add,
        )
        self.recovered += len(old) - len(recovered.failed)
        self.sealed.update(recovered.ends)
        self._rollups.unswept.update(recovered.ends)
        self._check_not_ended()  # we may have been fenced meanwhile
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
        """A new log for each of these partitions that is ours and not led yet."""
        logs: dict[PartitionKey, tuple[PartitionLog, PartitionState]] = {}
        own = self._writer.incarnation
        for topic_id, rows in itertools.groupby(wanted, key=lambda row: row[0]):
            topic = state.topics.get(topic_id)
            if topic is None:
                continue
            for row in rows:
                number = row[1]
                partition = topic.partitions[number]
                if partition.leader != own or (topic.id_bytes, number) in self._led.partitions:
                    continue
                log = PartitionLog(
                    self._store,
                    self._writer,
                    self._settings.segment,  # until it is led: then its topic's configs apply
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
        """Lead these logs from now on. Close those that we lost during the recovery."""
        for topic_id, group in itertools.groupby(logs, key=lambda log: log.topic_id):
            topic = self._cluster.state.topic_by_id(topic_id)
            ours: list[PartitionLog] = []
            for log in group:
                loss = self._loss(topic, log)
                if loss is None:
                    ours.append(log)
                else:  # otherwise its producers would stay counted
                    log.close(loss)
            if topic is not None and ours:
                self._led.add(topic, ours)
        for log in logs:
            over = self._taking.pop((log.topic_id.hex(), log.partition), None)
            if over is not None:
                over.set()

    def _loss(self, topic: Topic | None, log: PartitionLog) -> NeveError | None:
        """Return why a recovered log is not ours to lead; None if it is."""
        if self._writer.ended is not None:
            return self._writer.ended
        if topic is None:
            return NoTopicError(f"the topic of {log.name} was deleted")
        current = topic.partitions[log.partition]
        if current.leader == self._writer.incarnation and current.epoch == log.epoch:
            return None
        return FencedError(f"another process leads {log.name} now")


def _has_unled(topic: Topic) -> bool:
    return any(partition.leader == NO_LEADER for partition in topic.partitions)


def _topic(state: ClusterState, name: str) -> Topic:
    topic = state.topic(name)
    if topic is None:
        raise NoTopicError(f"there is no topic {name!r}")
    return topic
