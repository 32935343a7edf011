"""Roll-ups of a node's own stream and of the dead ones it sealed, and where slices lie since.

A roll-up moves slices to other objects; the logs that hold them are told. A slice that is not where
its log thought is looked for in the stream anew.
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
from neve.errors import DamagedError, NeveError, NotFoundError
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

# Looks at a stream from which objects go missing as it is swept: another successor may be at it.
SWEEPS_MAX = 3


class StreamRollups:
    """Rolls up streams for one node."""

    def __init__(
        self, store: Store, settings: Settings, cluster: ClusterLog, led: LedPartitions
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._own: OwnStream
        self._writer: WalWriter
        self._rollups = asyncio.Lock()
        self._is_cheap = False
        self._sweeping = asyncio.Lock()
        self._moved: dict[int, int] = {}  # the checkpoint of each stream by which slices moved last
        self.unswept: dict[int, int] = {}  # dead streams that we sealed, and where they end

    def of_own(self, own: OwnStream, writer: WalWriter) -> None:
        """The stream that this node writes."""
        self._own, self._writer = own, writer

    async def sweep(self) -> None:
        """Roll up the dead streams that we sealed: the next to read them has little to do.

        A stream that cannot be read keeps none of the others from being swept; the first failure is
        raised at the end.
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
                # What no partition needs any more is retired, and then nothing of it is missed.
                if incarnation not in (await self._cluster.refresh()).streams():
                    return
                # Another successor may have swept it as we read: it is whole at the next look. An
                # object that is missing for good is lost.
                if attempt == SWEEPS_MAX or not isinstance(error, NotFoundError):
                    raise
            else:
                return

    def due(self) -> bool:
        """Whether our stream has grown past wal.tail.objects or wal.tail.bytes, or soon will.

        What is untiered is written anew by a roll-up, and just after a segment was made that is
        least: then one is made early.
        """
        return self._is_cheap or self._own.roll_up_due()

    def tiered(self) -> None:
        """A segment was made of some of our stream."""
        untiered = (log.tail_bytes for log in self._led.partitions.values())
        self._is_cheap = self._own.roll_up_is_cheap(untiered)

    async def roll_up(self) -> bool:
        """Checkpoint our own stream at what is committed; whether we did."""
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
        moved: dict[PartitionId, list[tuple[CachedObject, Slice]]] = {}
        for item in items:
            held = CachedObject(item.key, incarnation, item.number, item.data)
            for entry in item.slices:
                moved.setdefault((entry.topic_id, entry.partition), []).append((held, entry))
        for partition, log in self._led.partitions.items():
            log.moved(incarnation, below, moved.get(partition, []))

    async def resolve(self, incarnation: int) -> None:
        """Read a stream's tail again, because something in it is not where we thought.

        Raises FencedError where a successor has moved it, and not DamagedError.
        """
        own = incarnation == self._own.incarnation
        below = self._writer.committed_end if own else None
        try:
            tail = await WalReader(self._store, incarnation, self._settings.prefetch).tail()
        except (DamagedError, NotFoundError):
            await self.check_leading()
            raise
        below = tail.position if below is None else min(below, tail.position)
        items = [item for item in tail.objects if item.number is None or item.number < below]
        self._tell_of_move(incarnation, tail.checkpoint, below, items)

    async def check_leading(self) -> None:
        """Raise FencedError if another process has taken over.

        A successor sweeps, trims and retires what we have read from, which looks like damage to us.
        """
        if not await self._writer.still_leading() and self._writer.ended is not None:
            raise self._writer.ended

    async def _manifests(self, tail: StreamTail) -> dict[PartitionId, ManifestState | None]:
        """The manifest of each partition of a stream, as won numbers have it; None: deleted."""
        state = await self._cluster.refresh()
        wanted = {
            (entry.topic_id, entry.partition) for item in tail.objects for entry in item.slices
        }

        async def manifest_of(topic_id: bytes, number: int) -> ManifestState | None:
            topic = state.topic_by_id(topic_id)
            log = self._led.partitions.get((topic_id, number))
            if topic is None:
                return None
            if log is not None:
                return log.manifest.state
            keys = manifest_keys(topic.name, topic_id, number)
            return await Manifest(self._store, keys).refresh()

        names = sorted(wanted | set(tail.ends))
        states = await runtime.gather(*(manifest_of(*name) for name in names))
        return dict(zip(names, states, strict=True))
