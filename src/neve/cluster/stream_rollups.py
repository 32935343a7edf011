"""Roll-ups of a node's own stream and of the dead streams that it sealed.

A roll-up moves slices to other objects, and the logs that hold them are notified. If a slice is not
where its log expects it, `resolve` reads the stream's tail again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.own_stream import OwnStream
from neve.cluster.recovery import raise_first
from neve.errors import DamagedError, LostRangeError, NeveError, NotFoundError
from neve.log.cached_slice import CachedObject
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.skips import is_skipped
from neve.log.manifest.state import ManifestState
from neve.log.wal.object import Slice
from neve.log.wal.reader import PartitionId, StreamTail, TailObject, WalReader
from neve.log.wal.rollup import roll_up, trim
from neve.log.wal.writer import WalWriter
from neve.settings import Settings
from neve.store.port import Store

# Attempts to sweep a stream whose objects disappear meanwhile: another successor may sweep it too.
SWEEPS_MAX = 3


class StreamRollups:
    """Rolls up streams for one node."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        *,
        led: LedPartitions,
        own: OwnStream,
        writer: WalWriter,
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._own = own
        self._writer = writer
        self._rollups = asyncio.Lock()
        self._is_cheap = False
        self._sweeping = asyncio.Lock()
        self._moved: dict[int, int] = {}  # by stream: the checkpoint that last moved its slices
        self.unswept: dict[int, int] = {}  # dead streams that we sealed, and where they end

    async def sweep(self) -> None:
        """Roll up the dead streams that we sealed, so that their next reader has little to read.

        A stream that cannot be read does not stop the others. Raises the first failure at the end.
        """
        failures: list[NeveError] = []
        async with self._sweeping:
            for incarnation, end in list(self.unswept.items()):
                try:
                    await self._sweep(incarnation, end)
                except NeveError as error:
                    failures.append(error)
                else:
                    self.unswept.pop(incarnation, None)
        raise_first(failures)

    async def _sweep(self, incarnation: int, end: int) -> None:
        for attempt in itertools.count(1):
            reader = WalReader(self._store, incarnation, self._settings.prefetch)
            try:
                tail = await reader.tail()
                if tail.checkpoint < end:
                    await self._roll_up(reader, tail, end)
                await trim(self._store, reader, end=end)
            except (NotFoundError, DamagedError) as error:
                # A stream that no partition needs is retired: its objects may be missing.
                if incarnation not in (await self._cluster.refresh()).streams():
                    return
                # Another successor may have swept it meanwhile: the next attempt finds it whole.
                # An object that stays missing is lost.
                if attempt == SWEEPS_MAX or not isinstance(error, NotFoundError):
                    raise
            else:
                return

    def due(self) -> bool:
        """Whether our stream has grown past wal.tail.objects or wal.tail.bytes, or soon will.

        A roll-up copies everything untiered. That is least just after a segment was written, so a
        roll-up that is due soon is made then.
        """
        return self._is_cheap or self._own.roll_up_due()

    def tiered(self) -> None:
        """Note that a part of our stream is in a segment now."""
        untiered = (leader.log.tail_bytes for leader in self._led.partitions.values())
        self._is_cheap = self._own.roll_up_is_cheap(untiered)

    async def roll_up_if_due(self) -> bool:
        """Checkpoint our own stream if that is due. Returns True if a checkpoint was written."""
        return self.due() and await self.roll_up()

    async def roll_up(self) -> bool:
        """Checkpoint our own stream at its committed end. Returns True if one was written."""
        async with self._rollups:
            self._is_cheap = False
            return await self._roll_up_own()

    async def _roll_up_own(self) -> bool:
        upto = self._writer.committed_end
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

        own = reader.incarnation == self._own.incarnation
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
            self._move(reader.incarnation, upto, upto, rollups)
        return rollups

    def _move(
        self, incarnation: int, checkpoint: int, below: int, items: Iterable[TailObject]
    ) -> None:
        """Notify logs: slices of a stream from numbers below `below` are in these objects now."""
        # A tail that was read before a later checkpoint lacks what that checkpoint rolled up.
        if checkpoint < self._moved.get(incarnation, 0):
            return
        self._moved[incarnation] = checkpoint
        moved: dict[PartitionId, list[tuple[CachedObject, Slice]]] = {}
        for item in items:
            held = CachedObject(item.key, incarnation, item.number, item.data)
            for entry in item.slices:
                moved.setdefault((entry.topic_id, entry.partition), []).append((held, entry))
        for partition, leader in self._led.partitions.items():
            leader.log.moved(incarnation, below, moved.get(partition, []))

    async def resolve(self, incarnation: int) -> None:
        """Read a stream's tail again, because a slice is not where its log expected it.

        Raises FencedError, not DamagedError, if a successor has moved it; LostRangeError if the
        stream was given up, see `neve cluster abandon-wal`.
        """
        own = incarnation == self._own.incarnation
        if not own and incarnation not in self._cluster.state.streams():
            await self.check_leading()
            raise LostRangeError(f"stream {incarnation} was given up, and what it held is lost")
        below = self._writer.committed_end if own else None
        try:
            tail = await WalReader(self._store, incarnation, self._settings.prefetch).tail()
        except (DamagedError, NotFoundError):
            await self.check_leading()
            raise
        below = tail.position if below is None else min(below, tail.position)
        items = [item for item in tail.objects if item.number is None or item.number < below]
        self._move(incarnation, tail.checkpoint, below, items)

    async def check_leading(self) -> None:
        """Raise FencedError if another process has taken over.

        A successor sweeps, trims and retires streams that we read. To us that looks like damage.
        """
        if not await self._writer.still_leading() and self._writer.ended is not None:
            raise self._writer.ended

    async def _manifests(self, tail: StreamTail) -> dict[PartitionId, ManifestState | None]:
        """The manifest of each partition of a stream; None if the topic was deleted."""
        state = await self._cluster.refresh()
        wanted = {
            (entry.topic_id, entry.partition) for item in tail.objects for entry in item.slices
        }

        async def manifest_of(topic_id: bytes, number: int) -> ManifestState | None:
            topic = state.topic_by_id(topic_id)
            leader = self._led.partitions.get((topic_id, number))
            if topic is None:
                return None
            if leader is not None:
                return leader.log.manifest.state
            keys = manifest_keys(topic.name, topic_id, number)
            return await Manifest(self._store, keys).refresh()

        names = sorted(wanted | set(tail.ends))
        states = await runtime.gather(*(manifest_of(*name) for name in names))
        return dict(zip(names, states, strict=True))
