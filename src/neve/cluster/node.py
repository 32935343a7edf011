"""One process's place in the bucket: its incarnation, its WAL stream, the partitions it leads.

This is everything a broker does below the wire: it registers, takes partitions over, appends,
commits, tiers, rolls up and collects. It starts no work in the background by itself: whoever owns
it calls `tend` as often as it likes, so that the same code runs under a broker, a test and a
simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Sequence

from neve import runtime
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.own_stream import OwnStream
from neve.cluster.recovery import raise_first, recover
from neve.cluster.retention import retain
from neve.cluster.state import ClusterState, Topic
from neve.cluster.streams import retire_streams
from neve.errors import FencedError, InvalidError, NeveError, NotFoundError
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.state import ManifestState
from neve.log.partition import Appended, HeldObject, PartitionLog
from neve.log.retention import move_start
from neve.log.tail import is_skipped
from neve.log.wal.object import Slice
from neve.log.wal.reader import PartitionId, StreamTail, TailObject, WalReader
from neve.log.wal.rollup import roll_up, trim
from neve.log.wal.writer import CommittedObject, WalWriter
from neve.settings import Settings
from neve.store.port import Store
from neve.store.probe import probe as probe_store

# The delay that wal.linger.ms = -1 means where each PUT is paid for.
LINGER_MS_WHERE_PUTS_COST = 100
# How often a take-over looks again because a stream that it could not read is needed no more.
TAKE_OVERS_MAX = 5


class Node:
    """A registered process. Use `Node.start`, and `close` or `abort` at the end."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        incarnation: int,
        linger_ms: int,
    ) -> None:
        self._store = store
        self._settings = settings
        self._own = OwnStream(store, incarnation, settings)
        self.cluster = cluster
        self.incarnation = incarnation
        self.partitions: dict[PartitionId, PartitionLog] = {}
        self.sealed: dict[int, int] = {}  # streams that we ended, and where
        self._unswept: dict[int, int] = {}
        self._leading = asyncio.Lock()
        self._rolling = asyncio.Lock()
        self._moved: dict[int, int] = {}  # the checkpoint of each stream by which slices moved last
        self.writer = WalWriter(
            store,
            incarnation,
            settings.wal,
            linger_ms=linger_ms,
            on_commit=self._committed,
            on_end=self._ended,
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
        """Register in the bucket's cluster, which is made if there is none yet.

        A bucket without a cluster is probed first: BrokenRuleError where it breaks a rule that
        everything rests on. `puts_cost` says that a linger is worth its while: see wal.linger.ms.
        """
        cluster = ClusterLog(store)
        if not (await cluster.refresh()).cluster_id:
            if probe:
                await probe_store(store)
            await cluster.init()
        linger_ms = settings.wal.linger_ms
        if linger_ms < 0:
            linger_ms = LINGER_MS_WHERE_PUTS_COST if puts_cost else 0
        incarnation = await cluster.register(
            node_id, inflight=settings.wal.inflight_max, host=host, port=port, rack=rack
        )
        return cls(store, settings, cluster, incarnation, linger_ms)

    # -- leading -----------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int) -> Topic:
        """Create a topic and lead all of it."""
        topic = await self.cluster.create_topic(name, partitions)
        await self.lead([name])
        return topic

    async def lead(self, topics: Sequence[str] | None = None) -> None:
        """Take over all partitions of these topics, or of every topic, that we do not lead yet.

        What cannot be recovered keeps nothing else from being led; it is raised at the end.
        """
        # One at a time: two would each recover the same partition, and give out offsets twice.
        async with self._leading:
            await self._lead(topics)

    async def _lead(self, topics: Sequence[str] | None) -> None:
        if self.writer.ended is not None:
            raise self.writer.ended
        state = await self.cluster.refresh()
        names = [topic.name for topic in state.topics.values()] if topics is None else topics
        wanted = []
        for name in names:
            topic = state.topic(name)
            if topic is None:
                raise NoTopicError(f"there is no topic {name!r}")
            wanted += [
                (topic.topic_id, number)
                for number in range(len(topic.partitions))
                if (topic.id_bytes, number) not in self.partitions
            ]
        await self.cluster.lead(self.incarnation, wanted)
        try:
            for _ in range(TAKE_OVERS_MAX):
                failures = await self._take_over(wanted)
                if not failures or not await self._streams_changed():
                    break
        finally:
            with contextlib.suppress(NeveError):
                await self._sweep()  # tending tries again
        raise_first(failures)

    async def _streams_changed(self) -> bool:
        """Whether other streams are needed now: one that was retired as we read looks damaged."""
        before = self.cluster.state.streams()
        return (await self.cluster.refresh()).streams() != before

    async def _take_over(self, wanted: list[tuple[str, int]]) -> list[NeveError]:
        """Recover what is ours and not led yet; why what is left could not be."""
        state = self.cluster.state
        taken = []
        for topic_id, number in wanted:
            topic = state.topics.get(topic_id)
            if topic is None or topic.partitions[number].leader != self.incarnation:
                continue
            if (topic.id_bytes, number) in self.partitions:
                continue
            partition = topic.partitions[number]
            log = PartitionLog(
                self._store,
                self.writer,
                self._settings.segment,
                topic=topic.name,
                topic_id=topic.id_bytes,
                partition=number,
                epoch=partition.epoch,
                resolve=self._resolve,
            )
            taken.append((log, partition))
        if not taken:
            return []
        recovered = await recover(self._store, self.incarnation, state.brokers, taken)
        self.sealed.update(recovered.ends)
        self._unswept.update(recovered.ends)
        if self.writer.ended is not None:
            raise self.writer.ended  # fenced while we recovered: nothing could be written here
        for log, _ in taken:
            if log not in recovered.failed:
                self.partitions[log.topic_id, log.partition] = log
        return list(recovered.failed.values())

    async def _sweep(self) -> None:
        """Roll up the dead streams that we sealed: the next to read them has little to do."""
        for incarnation, end in list(self._unswept.items()):
            reader = WalReader(self._store, incarnation, self._settings.prefetch)
            try:
                tail = await reader.tail()
                if tail.checkpoint < end:
                    await self._roll_up(reader, tail, end)
                await trim(self._store, reader, end=end)
            except NotFoundError:
                pass  # another successor swept first; what we recovered resolves again
            self._unswept.pop(incarnation, None)

    # -- appending ---------------------------------------------------------------------------

    def append(self, topic_id: bytes, partition: int, batch: bytearray | memoryview) -> Appended:
        """Append one checked batch to a partition that we lead. It is patched in place."""
        log = self.partitions.get((topic_id, partition))
        if log is None:
            raise FencedError(f"this node does not lead partition {partition} of {topic_id.hex()}")
        return log.append(batch)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition that we lead."""
        found = self.cluster.state.topic(topic)
        if found is None or (found.id_bytes, partition) not in self.partitions:
            raise InvalidError(f"this node does not lead partition {partition} of {topic!r}")
        return self.partitions[found.id_bytes, partition]

    def _committed(self, done: CommittedObject) -> None:
        held = self._own.committed(done)
        for entry in done.slices:
            log = self.partitions.get((entry.topic_id, entry.partition))
            if log is not None:
                log.committed(held, entry)

    def _ended(self, error: NeveError) -> None:
        """Our stream is over: we lead nothing any more."""
        del error
        self.partitions.clear()

    # -- tending -----------------------------------------------------------------------------

    async def tend(self) -> None:
        """Do what is due: tier, roll up, let go of old streams.

        What fails keeps nothing else from being done; the first failure is raised at the end.
        """
        failures: list[NeveError] = []

        async def attempt(work: Awaitable[object]) -> None:
            try:
                await work
            except NeveError as error:
                failures.append(error)

        for log in list(self.partitions.values()):
            await attempt(_tier_what_is_due(log))
        await attempt(self._sweep())
        if self._own.roll_up_due():
            await attempt(self.roll_up())
        await attempt(self.let_go())
        raise_first(failures)

    async def roll_up(self) -> bool:
        """Checkpoint our own stream at what is committed; whether we did."""
        async with self._rolling:
            return await self._roll_up_own()

    async def _roll_up_own(self) -> bool:
        upto = self.writer.committed_end
        tail = await self._own.tail(upto)
        upto = min(upto, tail.position)
        if tail.checkpoint >= upto or tail.sealed:
            return False
        self._own.rolling_up()
        rollups = await self._roll_up(self._own.reader, tail, upto)
        if rollups is None:
            return False
        self._own.rolled_up(tail, upto, rollups)
        await trim(self._store, self._own.reader)
        return True

    async def _roll_up(
        self, reader: WalReader, tail: StreamTail, upto: int
    ) -> list[TailObject] | None:
        manifests = await self._manifests(tail)

        def tiered(topic_id: bytes, number: int) -> int | None:
            manifest = manifests[topic_id, number]
            return None if manifest is None else manifest.next

        def given_up(entry: Slice) -> bool:
            manifest = manifests[entry.topic_id, entry.partition]
            return manifest is not None and is_skipped(
                manifest.skips, entry.base_offset, entry.last_offset + 1
            )

        own = reader.incarnation == self.incarnation
        rollups = await roll_up(
            self._store,
            reader,
            tail,
            upto,
            tiered,
            read=self._own.read if own else None,
            given_up=given_up,
        )
        if rollups is not None:
            self._tell_of_move(reader.incarnation, upto, upto, rollups)
        return rollups

    def _tell_of_move(
        self, incarnation: int, checkpoint: int, below: int, items: Iterable[TailObject]
    ) -> None:
        """Slices that lay in numbers below `below` of a stream lie in these objects now."""
        # A look from before a later checkpoint knows nothing of what that one has rolled up.
        if checkpoint < self._moved.get(incarnation, 0):
            return
        self._moved[incarnation] = checkpoint
        moved: dict[PartitionId, list[tuple[HeldObject, Slice]]] = {}
        for item in items:
            held = HeldObject(item.key, incarnation, item.number, item.data)
            for entry in item.slices:
                moved.setdefault((entry.topic_id, entry.partition), []).append((held, entry))
        for partition, log in self.partitions.items():
            log.moved(incarnation, below, moved.get(partition, []))

    async def _resolve(self, incarnation: int) -> None:
        """Read a stream's tail anew, because something in it is not where we thought."""
        own = incarnation == self.incarnation
        below = self.writer.committed_end if own else None
        tail = await WalReader(self._store, incarnation, self._settings.prefetch).tail()
        below = tail.position if below is None else min(below, tail.position)
        items = [item for item in tail.objects if item.number is None or item.number < below]
        self._tell_of_move(incarnation, tail.checkpoint, below, items)

    async def _manifests(self, tail: StreamTail) -> dict[PartitionId, ManifestState | None]:
        """The manifest of each partition of a stream, as won numbers have it; None: deleted."""
        state = await self.cluster.refresh()
        self._forget_deleted(state)
        wanted = {
            (entry.topic_id, entry.partition) for item in tail.objects for entry in item.slices
        }

        async def manifest_of(topic_id: bytes, number: int) -> ManifestState | None:
            topic = state.topics.get(topic_id.hex())
            log = self.partitions.get((topic_id, number))
            if topic is None:
                return None
            if log is not None:
                return log.manifest.state
            keys = manifest_keys(topic.name, topic_id, number)
            return await Manifest(self._store, keys).refresh()

        names = sorted(wanted | set(tail.ends))
        states = await runtime.gather(*(manifest_of(*name) for name in names))
        return dict(zip(names, states, strict=True))

    def _forget_deleted(self, state: ClusterState) -> None:
        for topic_id, number in list(self.partitions):
            if topic_id.hex() not in state.topics:
                del self.partitions[topic_id, number]

    async def let_go(self) -> None:
        """Tell the cluster which earlier streams our partitions no longer need."""
        state = self.cluster.state
        parts = []
        for (topic_id, number), log in self.partitions.items():
            topic = state.topics.get(topic_id.hex())
            if topic is None or len(topic.partitions[number].streams) < 2:
                continue
            # Slices lie in the order of epochs: what comes before the oldest slice is all tiered.
            oldest = log.tail[0].entry.leader_epoch if log.tail else log.epoch
            if any(part.epoch < oldest for part in topic.partitions[number].streams):
                parts.append((topic.topic_id, number, oldest - 1))
        if parts:
            await self.cluster.tiered(parts)

    async def retain(self) -> None:
        """Move the starts of our logs as their topics' retention.ms and retention.bytes say."""
        failures: list[NeveError] = []
        for (topic_id, _), log in list(self.partitions.items()):
            topic = self.cluster.state.topics.get(topic_id.hex())
            try:
                if topic is not None:
                    await retain(log, topic.configs)
            except NeveError as error:
                failures.append(error)
        raise_first(failures)

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Make `before` the first offset of a partition that we lead."""
        log = self.log(topic, partition)
        await move_start(log.manifest, before, end=log.high_watermark)

    async def collect(self) -> int:
        """Delete what our manifests doomed and what retired streams hold; how many objects went."""
        gone = 0
        failures: list[NeveError] = []
        self._forget_deleted(await self.cluster.refresh())
        for log in list(self.partitions.values()):
            try:
                gone += len(await log.manifest.collect())
            except NeveError as error:
                failures.append(error)
        gone += await retire_streams(self._store, self.cluster.state)
        raise_first(failures)
        return gone

    async def close(self) -> None:
        """Commit what was appended, then stop."""
        await self.writer.close()

    async def abort(self) -> None:
        """Stop at once, as a crash would."""
        await self.writer.abort()


async def _tier_what_is_due(log: PartitionLog) -> None:
    while log.tiering_due() and await log.tier():
        pass
