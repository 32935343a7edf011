"""One process's place in the bucket: its incarnation, its WAL stream, the partitions it leads.

This is everything a broker does below the wire: it registers, takes partitions over, appends,
commits, tiers, rolls up and collects. It starts no background work itself: `BackgroundLoops` does,
or its owner calls `tend`, so that the same code runs under a broker, a test and a simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from neve import runtime
from neve.cluster.broker_config import BrokerConfigs
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.own_stream import OwnStream
from neve.cluster.partition_maintenance import PartitionMaintenance
from neve.cluster.producer_ids import ProducerIdSource
from neve.cluster.purge import Purge
from neve.cluster.recovery import raise_first
from neve.cluster.state import ClusterState, Topic, is_live
from neve.cluster.stream_rollups import StreamRollups
from neve.cluster.streams import retire_streams
from neve.cluster.takeover import Takeover
from neve.cluster.topic_config import TopicConfig
from neve.errors import FencedError, InvalidError, NeveError
from neve.log.partition import Appended, PartitionLog
from neve.log.wal.reader import PartitionId
from neve.log.wal.writer import CommittedObject, WalWriter
from neve.serving.logs import event
from neve.settings import KIB, PARTITION_BYTES, Settings, spare_bytes
from neve.store.port import Store
from neve.store.probe import probe as probe_store

_log = logging.getLogger(__name__)

# The delay that wal.linger.ms = -1 means where each PUT is paid for.
LINGER_MS_WHERE_PUTS_COST = 100
# What it means elsewhere, for each upload under way. On a disk a small object takes about as long
# as one of this size, and objects beside each other take longer than one after the other.
JOIN_BYTES = 128 * KIB


class Node:
    """A registered process. Use `Node.start`, and `close` or `abort` at the end."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        incarnation: int,
        *,
        node_id: int,
        linger_ms: int,
        join_bytes: int,
    ) -> None:
        self._store = store
        self._end: NeveError | None = None
        self._is_closing = False
        self._on_end: list[Callable[[NeveError], None]] = []
        self.memory = runtime.MemoryBudget(spare_bytes(settings))
        self._partition_memory = self.memory.state(
            "partitions", PARTITION_BYTES * settings.cluster.partitions_max
        )
        self._own = OwnStream(store, incarnation, settings, self.memory)
        self.cluster = cluster
        self.incarnation = incarnation
        self.node_id = node_id
        self._work_due = asyncio.Event()
        self.broker_configs = BrokerConfigs(settings, cluster.state, incarnation)
        self.led = LedPartitions(incarnation, settings.segment, self.broker_configs)
        self.led.on_drop.append(lambda _: self._partition_memory.give_back(PARTITION_BYTES))
        self.rollups = StreamRollups(store, settings, cluster, self.led)
        self.maintenance = PartitionMaintenance(settings, cluster, self.led)
        self.writer = WalWriter(
            store,
            incarnation,
            settings.wal,
            linger_ms=linger_ms,
            join_bytes=join_bytes,
            on_commit=self._committed,
            on_end=self._ended,
        )
        self.rollups.of_own(self._own, self.writer)
        self.takeover = Takeover(
            store,
            settings,
            cluster,
            led=self.led,
            rollups=self.rollups,
            own=self._own,
            writer=self.writer,
            memory=self.memory,
            on_led=self._adopt,
        )
        self.purging = Purge(
            store,
            cluster,
            incarnation,
            self.led,
            delay_ms=settings.cluster.purge_delay_ms,
            is_taking_over=self.takeover.is_taking,
        )
        self._producer_ids = ProducerIdSource(cluster, incarnation)
        cluster.on_change = self._cluster_changed

    @classmethod
    async def start(
        cls,
        store: Store,
        settings: Settings,
        *,
        node_id: int,
        puts_cost: bool = False,
        probe: bool = True,
        host: str = "",
        port: int = 0,
        rack: str = "",
    ) -> Node:
        """Register in the bucket's cluster, which is made if there is none yet.

        A bucket without a cluster is probed first: BrokenRuleError where it breaks a rule that
        everything rests on. `puts_cost` says that a linger is worth its while: see wal.linger.ms.
        """
        cluster = ClusterLog(store, settings.cluster)
        if not (await cluster.refresh()).cluster_id:
            if probe:
                await probe_store(store)
            await cluster.init()
        linger_ms, join_bytes = settings.wal.linger_ms, 0
        if linger_ms < 0:
            linger_ms = LINGER_MS_WHERE_PUTS_COST if puts_cost else 0
            join_bytes = 0 if puts_cost else JOIN_BYTES
        incarnation = await cluster.register(
            node_id, inflight=settings.wal.inflight_max, host=host, port=port, rack=rack
        )
        return cls(
            store,
            settings,
            cluster,
            incarnation,
            node_id=node_id,
            linger_ms=linger_ms,
            join_bytes=join_bytes,
        )

    # -- topics ------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic and lead all of it."""
        topic = await self.cluster.create_topic(name, partitions, configs)
        event(
            _log,
            logging.INFO,
            "topic created",
            topic=name,
            topic_id=topic.topic_id,
            partitions=partitions,
            configs=dict(configs or {}),
        )
        await self.takeover.lead_created(topic, range(partitions))
        return topic

    async def add_partitions(self, name: str, total: int) -> Topic:
        """Give a topic more partitions, `total` in all, and lead the new ones."""
        topic, created = await self.cluster.add_partitions(name, total)
        event(_log, logging.INFO, "partitions added", topic=name, partitions=total)
        await self.takeover.lead_created(topic, created)
        return topic

    async def set_configs(
        self, name: str, values: Mapping[str, str], removed: Collection[str] = ()
    ) -> Topic:
        """Give configs of a topic and take others back. They hold for our logs at once."""
        topic = await self.cluster.set_configs(name, values, removed)
        given = {"topic": name, "configs": dict(values), "removed": list(removed)}
        event(_log, logging.INFO, "topic configs changed", **given)
        return topic

    async def set_broker_configs(
        self, node_id: int, values: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        """Give configs of one node, or of all, and take others back. Ours hold at once."""
        await self.cluster.set_broker_configs(node_id, values, removed)
        given = {"node": node_id, "configs": dict(values), "removed": list(removed)}
        event(_log, logging.INFO, "broker configs changed", **given)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Our logs of it are closed; its objects go when it is purged."""
        topic = await self.cluster.delete_topic(name)
        event(_log, logging.INFO, "topic deleted", topic=name, topic_id=topic.topic_id)

    async def producer_id(self) -> int:
        """A producer id that nobody else has or will have."""
        return await self._producer_ids.next()

    def topic(self, name: str) -> Topic | None:
        """The topic of this name, as far as we know."""
        return self.cluster.view.state.topic(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id, as far as we know."""
        return self.cluster.view.state.topic_by_id(topic_id)

    # -- leading -----------------------------------------------------------------------------

    async def lead(self, topics: Sequence[str] | None = None) -> None:
        """Take over all partitions of these topics, or of every topic, that we do not lead yet.

        Every other process of the cluster is declared dead. What cannot be recovered keeps nothing
        else from being led; it is raised at the end.
        """
        await self.takeover.lead(topics)

    @property
    def sealed(self) -> dict[int, int]:
        """The streams that we ended, and where."""
        return self.takeover.sealed

    @property
    def partitions(self) -> dict[PartitionId, PartitionLog]:
        """The partitions that we lead."""
        return self.led.partitions

    def _adopt(self, logs: Sequence[PartitionLog]) -> None:
        self._partition_memory.count(PARTITION_BYTES * len(logs))
        for log in logs:
            self.maintenance.adopt(log)
        self._work_due.set()

    # -- appending ---------------------------------------------------------------------------

    def append(self, topic_id: bytes, partition: int, batch: bytearray | memoryview) -> Appended:
        """Append one checked batch to a partition that we lead. It is patched in place."""
        log = self.led.partitions.get((topic_id, partition))
        if log is None:
            raise FencedError(f"this node does not lead partition {partition} of {topic_id.hex()}")
        return log.append(batch)

    def log_of(self, topic_id: bytes, partition: int) -> PartitionLog | None:
        """The log of a partition, if we lead it."""
        return self.led.partitions.get((topic_id, partition))

    def config_of(self, log: PartitionLog) -> TopicConfig:
        """What the configs of a log's topic amount to."""
        return self.led.config_of(log)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition that we lead, by name; InvalidError if we do not."""
        found = self.topic(topic)
        log = None if found is None else self.log_of(found.id_bytes, partition)
        if log is None:
            raise InvalidError(f"this node does not lead partition {partition} of {topic!r}")
        return log

    def _committed(self, done: CommittedObject) -> None:
        held = self._own.committed(done)
        partitions = self.led.partitions
        is_due = self._own.roll_up_due()
        for entry in done.slices:
            log = partitions.get((entry.topic_id, entry.partition))
            if log is not None:
                log.committed(held, entry)
                is_due |= self.maintenance.committed(log)
        if is_due:
            self._work_due.set()

    async def tier(self, log: PartitionLog) -> bool:
        """Tier one segment of a log that we still lead; whether that was done."""
        done = await self.maintenance.tier(log)
        if done:
            self.rollups.tiered()
            if self.rollups.due():
                self._work_due.set()
        return done

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a commit made some work due, but no longer than this."""
        self._work_due.clear()
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._work_due.wait()

    # -- tending -----------------------------------------------------------------------------

    async def tend(self) -> None:
        """Do what is due: tier, roll up, let go of old streams.

        What fails keeps nothing else from being done; the first failure is raised at the end.
        """
        failures = await self.maintenance.tier_all_due()
        for work in (self.rollups.sweep, self._roll_up_if_due, self.let_go):
            try:
                await work()
            except NeveError as error:
                failures.append(error)
        raise_first(failures)

    def roll_up_due(self) -> bool:
        """Whether a roll-up of our own stream is to be made."""
        return self.rollups.due()

    async def _roll_up_if_due(self) -> None:
        if self.rollups.due():
            await self.roll_up()

    async def roll_up(self) -> bool:
        """Checkpoint our own stream at what is committed; whether we did."""
        return await self.rollups.roll_up()

    async def _resolve(self, incarnation: int) -> None:
        await self.rollups.resolve(incarnation)

    async def let_go(self) -> None:
        """Tell the cluster which earlier streams our partitions no longer need."""
        await self.maintenance.let_go()

    async def retain(self) -> None:
        """Move the starts of our logs as their topics' retention.ms and retention.bytes say."""
        await self.maintenance.retain_all()

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Make `before` the first offset of a partition that we lead."""
        await self.maintenance.move_start(self.log(topic, partition), before)

    async def collect(self) -> int:
        """Delete what our manifests doomed and what retired streams hold; how many objects went."""
        gone = 0
        failures: list[NeveError] = []
        await self.cluster.refresh()
        for log in list(self.led.partitions.values()):
            try:
                gone += await self.maintenance.collect(log)
            except NeveError as error:
                failures.append(error)
        gone += await self.retire_streams()
        raise_first(failures)
        return gone

    async def retire_streams(self) -> int:
        """Delete what is left of streams that nobody needs; how many objects went."""
        return await retire_streams(self._store, self.cluster)

    async def purge(self) -> int:
        """Remove what deleted topics left, as far as that is due; how many objects went."""
        await self.cluster.refresh()
        return await self.purging.purge()

    # -- the end -----------------------------------------------------------------------------

    @property
    def ended(self) -> NeveError | None:
        """Why this incarnation is over; None while it is not."""
        return self._end or self.writer.ended

    def on_end(self, told: Callable[[NeveError], None]) -> None:
        """Call this once, if the incarnation ends without `close` or `abort` having been called."""
        self._on_end.append(told)

    def _cluster_changed(self, state: ClusterState) -> None:
        """Apply what the cluster log says now. Once it says that we are over, we stop at once."""
        self.led.apply(state)
        if not is_live(state.brokers, self.incarnation) and self.ended is None:
            self.writer.fence(self._superseded(state))

    def _superseded(self, state: ClusterState) -> FencedError:
        """Why the cluster log says that our incarnation is over."""
        again = [row for row in state.brokers.values() if row.live and row.node_id == self.node_id]
        if again:
            return FencedError(
                f"incarnation {self.incarnation} is over: node {self.node_id} was started again as "
                f"incarnation {again[0].incarnation}"
            )
        others = [str(row.node_id) for row in state.brokers.values() if row.live]
        by = f"node {', '.join(others)}" if others else "another process"
        return FencedError(f"incarnation {self.incarnation} is over: {by} has taken its place")

    def _ended(self, error: NeveError) -> None:
        """Our stream is over: we lead nothing any more."""
        self.led.clear(error)
        self._work_due.set()
        if self._end is None and not self._is_closing:
            self._end = error
            for told in self._on_end:
                told(error)

    async def close(self) -> None:
        """Commit what was appended, then stop. The next start takes over what we led."""
        self._is_closing = True
        await self.writer.close()

    async def abort(self) -> None:
        """Stop at once, as a crash would."""
        self._is_closing = True
        await self.writer.abort()
