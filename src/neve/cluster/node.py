"""One broker process below the wire: its registration, its WAL stream, the partitions it leads.

A `Node` composes the parts and owns their lifecycle. The work is in the parts: `LedPartitions` has
the leader of each partition, `Takeover` takes partitions over, `TopicOperations` creates and
changes topics, `StreamRollups` rolls up streams, `PartitionMaintenance` and `BackgroundLoops` run
background work. A node starts no background task itself: `BackgroundLoops` does, or the owner calls
`run_due_work`, so that the same code runs in a broker, a test and a simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from neve import runtime
from neve.cluster.broker_config import BrokerConfigs
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog, ReplacedError
from neve.cluster.maintenance_queues import MaintenanceQueues
from neve.cluster.own_stream import OwnStream
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.partition_maintenance import PartitionMaintenance
from neve.cluster.peer_auth import KeyPair
from neve.cluster.placement import is_janitor, moves_from
from neve.cluster.producer_ids import ProducerIdSource
from neve.cluster.purge import Purge
from neve.cluster.recovery import raise_first
from neve.cluster.release import PartitionReleases
from neve.cluster.replication import Replication
from neve.cluster.state import ClusterState, is_live
from neve.cluster.stream_rollups import StreamRollups
from neve.cluster.streams import retire_streams
from neve.cluster.takeover import Takeover
from neve.cluster.topic_operations import TopicOperations
from neve.cluster.wal_stores import own_wal_store
from neve.errors import FencedError, NeveError, UnavailableError, UnsupportedError
from neve.log.wal.writer import CommittedObject, WalWriter
from neve.settings import KIB, Settings, spare_bytes
from neve.store.port import Store
from neve.store.probe import probe as probe_store

# What wal.linger.ms = -1 means in a store that charges for each PUT: this delay.
LINGER_MS_WHERE_PUTS_COST = 100
# In any other store it means: while an upload runs, wait for this many bytes. On a disk a small
# object takes about as long as one of this size, and parallel writes are slower than serial ones.
JOIN_BYTES = 128 * KIB


class Node:
    """A registered process. Use `Node.start`, and `close` or `abort` at the end."""

    _end: NeveError | None = None
    _is_closing = False

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        incarnation: int,
        *,
        node_id: int,
        key_pair: KeyPair,
        linger_ms: int,
        join_bytes: int,
    ) -> None:
        self._on_end: list[Callable[[NeveError], None]] = []
        self._changed = asyncio.Event()
        self.store = store
        self.cluster = cluster
        self.incarnation = incarnation
        self.node_id = node_id
        self.key_pair = key_pair
        self.memory = runtime.MemoryBudget(spare_bytes(settings))
        self.broker_configs = BrokerConfigs(settings, cluster.state, incarnation)
        self.queues = MaintenanceQueues(settings, cluster, on_tiered=self._tiered)
        self.led = LedPartitions(
            incarnation, settings, self.broker_configs, self.queues, self.memory
        )
        self.maintenance = PartitionMaintenance(cluster, self.led, self.queues)
        self.own_stream = OwnStream(store, incarnation, settings, self.memory)
        self.writer = WalWriter(
            store,
            incarnation,
            settings.wal,
            linger_ms=linger_ms,
            join_bytes=join_bytes,
            on_commit=self._committed,
            on_end=self._ended,
        )
        own, writer = self.own_stream, self.writer
        self.replication = Replication(store, settings, cluster, self.led, own, memory=self.memory)
        self.rollups = StreamRollups(store, settings, cluster, led=self.led, own=own, writer=writer)
        self.takeover = self._takeover(settings)
        self.purging = Purge(
            store,
            cluster,
            incarnation,
            self.led,
            delay_ms=settings.cluster.purge_delay_ms,
            is_taking_over=self.takeover.is_taking,
        )
        self.releases = PartitionReleases(cluster, self.led, writer)
        self.topics = TopicOperations(cluster, self.takeover)
        self.producer_ids = ProducerIdSource(cluster, incarnation)
        cluster.on_change, cluster.on_newer = self._cluster_changed, writer.fence

    def _takeover(self, settings: Settings) -> Takeover:
        return Takeover(
            self.store,
            settings,
            self.cluster,
            led=self.led,
            rollups=self.rollups,
            own=self.own_stream,
            writer=self.writer,
            memory=self.memory,
            covering=self.replication.covering,
        )

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
        """Register in the bucket's cluster, which is created if there is none yet.

        A bucket without a cluster is probed first. Raises BrokenRuleError if the store breaks a
        rule that Neve depends on. `puts_cost` says whether the store charges for each PUT, which
        makes a linger worthwhile: see wal.linger.ms. The new process leads only what its earlier
        process led; `takeover` takes over more.
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
        key_pair = KeyPair.generate()
        wal_store = await own_wal_store(store, cluster.state, probe=probe)
        if wal_store is not None:
            # A registration with a WAL store needs the second level.
            await cluster.raise_level(joining=True)
        incarnation = await cluster.register(
            node_id,
            inflight=settings.wal.inflight_max,
            host=host,
            port=port,
            rack=rack,
            public_key=key_pair.public_key,
            wal_store=wal_store,
        )
        return cls(
            store,
            settings,
            cluster,
            incarnation,
            node_id=node_id,
            key_pair=key_pair,
            linger_ms=linger_ms,
            join_bytes=join_bytes,
        )

    # -- leading -----------------------------------------------------------------------------

    def leader_of(self, topic_id: bytes, partition: int) -> PartitionLeader | None:
        """The leader of a partition; None if this process does not lead it."""
        return self.led.serving.get((topic_id, partition))

    def leader(self, topic: str, partition: int) -> PartitionLeader:
        """The leader of a partition, by its topic's name. Raises FencedError if it is not ours."""
        found = self.cluster.state.topic(topic)
        leader = None if found is None else self.leader_of(found.id_bytes, partition)
        if leader is None:
            raise FencedError(f"this node does not lead partition {partition} of {topic!r}")
        return leader

    def _committed(self, done: CommittedObject) -> None:
        held = self.own_stream.committed(done)
        partitions = self.led.partitions
        if self.own_stream.roll_up_due():
            self.queues.notify()
        for entry in done.slices:
            leader = partitions.get((entry.topic_id, entry.partition))
            if leader is not None:
                leader.committed(held, entry)
        self.replication.committed(done.number + 1)

    def _tiered(self) -> None:
        self.rollups.tiered()
        if self.rollups.due():
            self.queues.notify()

    # -- background work ---------------------------------------------------------------------

    async def run_due_work(self) -> None:
        """Run the background work that is due, once: tier, roll up, record tiered streams.

        A failure does not stop the rest. Raises the first one at the end.
        """
        failures = await self.maintenance.tier_due()
        for work in (
            self.rollups.sweep,
            self.rollups.roll_up_if_due,
            self.maintenance.record_tiered_streams,
        ):
            try:
                await work()
            except NeveError as error:
                failures.append(error)
        raise_first(failures)

    async def collect(self) -> int:
        """Delete doomed objects and what retired streams hold. Returns how many objects."""
        await self.cluster.refresh()
        deleted, failures = await self.maintenance.collect_all()
        if is_janitor(self.cluster.state, self.incarnation):
            deleted += await retire_streams(self.store, self.cluster)
        raise_first(failures)
        return deleted

    # -- the end -----------------------------------------------------------------------------

    @property
    def ended(self) -> NeveError | None:
        """Why this incarnation has ended; None while it is live."""
        return self._end or self.writer.ended

    def on_end(self, notify: Callable[[NeveError], None]) -> None:
        """Call `notify` once if the incarnation ends without `close` or `abort`."""
        self._on_end.append(notify)

    def _cluster_changed(self, before: ClusterState, state: ClusterState) -> None:
        """Apply a new state of the cluster log. Fence our writer if we are not live in it."""
        self.led.apply(state)
        self.takeover.cluster_changed(before, state)
        self.replication.apply(state)
        self._changed.set()
        if not is_live(state.brokers, self.incarnation) and self.ended is None:
            self.writer.fence(self._superseded(state))

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until the cluster's state changes, but no longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _superseded(self, state: ClusterState) -> FencedError:
        """Why our incarnation is not live in this state."""
        again = [row for row in state.brokers.values() if row.live and row.node_id == self.node_id]
        if again:
            return ReplacedError(
                f"incarnation {self.incarnation} is over: node {self.node_id} was started again as "
                f"incarnation {again[0].incarnation}"
            )
        return FencedError(
            f"incarnation {self.incarnation} is over: other brokers have declared it dead"
        )

    def _ended(self, error: NeveError) -> None:
        """Lead nothing from now on: our stream has ended."""
        self.led.clear(error)
        self.queues.notify()
        if self._end is None and not self._is_closing:
            self._end = error
            for notify in self._on_end:
                notify(error)

    async def release_all(self) -> bool:
        """Release all partitions to other live processes. Returns True if none is left.

        Returns False at once if no other process is live.
        """
        state = self.cluster.state
        moves = moves_from(state, {self.incarnation})
        wanted = {(row.topic_id, row.partition): row.incarnation for row in moves}
        if wanted:
            await self.releases.release(wanted)
        return not self.led.partitions

    async def close(self) -> None:
        """Commit everything that was appended, leave the cluster, then stop.

        Partitions that were not released are moved to other live processes, or have no leader until
        the next process starts.
        """
        self._is_closing = True
        await self.writer.close()
        with contextlib.suppress(UnavailableError, FencedError, UnsupportedError):
            await self.cluster.deregister(self.incarnation)

    async def abort(self) -> None:
        """Stop at once, as a crash would."""
        self._is_closing = True
        await self.writer.abort()
