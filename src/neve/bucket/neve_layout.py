"""Neve's own layout: the cluster log lists topics and streams, and manifests list segments.

To be correct, resolving a partition reads the cluster log first, then the streams (their
checkpoints and numbers), then the newest manifest. If the tail does not continue the segments, all
three are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neve import runtime
from neve.bucket.layout import PartitionInfo, PartitionSource, Resolved, StreamInfo, Watcher
from neve.bucket.model import OFFSET_MAX, PARTITION_ERRORS, PartitionName, TopicInfo
from neve.bucket.watch import StreamWatcher
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.state import PartitionState, StreamPart
from neve.errors import DamagedError, NeveError, UnsupportedError
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment
from neve.log.manifest.skips import known_losses, leaps
from neve.log.tail import assemble
from neve.log.wal.directories import DirectoryCache
from neve.log.wal.reader import StreamTail, TailObject, WalReader
from neve.log.wal.stores import WalStoreUnavailableError
from neve.settings import ReaderSettings
from neve.store.port import Store

RESOLVE_ATTEMPTS_MAX = 20
RESOLVE_PAUSE_SECONDS = 0.05

StreamView = StreamTail | NeveError
"""A stream's tail, or why it cannot be read. Then only its partitions' segments are read."""


class NeveLayout:
    """A Neve cluster's bucket."""

    def __init__(self, store: Store, settings: ReaderSettings) -> None:
        self._store = store
        self._settings = settings
        self.cluster = ClusterLog(store)
        self._directories: DirectoryCache[TailObject] = DirectoryCache()

    @property
    def cluster_id(self) -> str:
        return self.cluster.state.cluster_id

    async def refresh(self) -> None:
        await self.cluster.must_exist()

    def topics(self) -> list[TopicInfo]:
        found = sorted(self.cluster.state.topics.values(), key=lambda topic: topic.name)
        return [
            TopicInfo(topic.name, topic.topic_id, tuple(range(len(topic.partitions))))
            for topic in found
        ]

    def sources(self, names: Sequence[PartitionName]) -> list[NeveSource]:
        known = self._directories
        return [NeveSource(self._store, self.cluster, name, known) for name in names]

    async def prepare(
        self, sources: Sequence[PartitionSource], ends: Sequence[int] | None = None
    ) -> None:
        """Read the streams once, before any manifest.

        A partition that is read only up to an offset in segments needs no stream.
        """
        own = [source for source in sources if isinstance(source, NeveSource)]
        if ends is not None:
            tiered = await runtime.gather(
                *(source.is_tiered_to(end) for source, end in zip(own, ends, strict=True))
            )
            own = [source for source, held in zip(own, tiered, strict=True) if not held]
        if not own:
            return
        # Taken now, because another reader of this bucket may refresh the cluster log meanwhile.
        parts = [source.parts for source in own]
        views = await read_views(
            self._store, (part for each in parts for part in each), self._directories
        )
        for source, looked_at in zip(own, parts, strict=True):
            source.looked_at(looked_at, views)

    def watcher(self, sources: Sequence[PartitionSource]) -> Watcher:
        own = [source for source in sources if isinstance(source, NeveSource)]
        return StreamWatcher(self._store, self._settings, self.cluster, own)

    async def partition_info(self, source: PartitionSource) -> PartitionInfo:
        assert isinstance(source, NeveSource)
        resolved = await source.resolve()
        segments = await source.manifest.segments()
        state = source.partition
        return PartitionInfo(
            partition=source.name.partition,
            start=resolved.start,
            end=resolved.end,
            segments=len(segments),
            segment_bytes=sum(segment.bytes for segment in segments),
            tail_bytes=sum(row.entry.length for row in resolved.tail),
            streams=tuple(part.incarnation for part in state.streams),
            leader=state.leader,
            epoch=state.epoch,
            skipped=sum(skip.last - skip.first + 1 for skip in known_losses(resolved.skips)),
            open_losses=tuple((skip.first, skip.last + 1) for skip in leaps(resolved.skips)),
            error=None if resolved.failure is None else str(resolved.failure),
        )

    async def stream_infos(self) -> list[StreamInfo]:
        state = self.cluster.state
        parts = [
            part
            for topic in state.topics.values()
            for partition in topic.partitions
            for part in partition.streams
        ]
        views = await read_views(self._store, parts)
        nodes = {broker.incarnation: broker.node_id for broker in state.brokers.values()}
        return [
            _stream_info(incarnation, nodes.get(incarnation, -1), view)
            for incarnation, view in views.items()
        ]


def _stream_info(incarnation: int, node: int, view: StreamView) -> StreamInfo:
    if isinstance(view, NeveError):
        return StreamInfo(incarnation, node, 0, 0, False, 0, str(view))
    return StreamInfo(
        incarnation, node, view.checkpoint, view.position, view.sealed, len(view.objects), None
    )


async def read_views(
    store: Store,
    parts: Iterable[StreamPart],
    known: DirectoryCache[TailObject] | None = None,
) -> dict[int, StreamView]:
    """Read the tails of these streams concurrently. A damaged one has its error as its view."""

    async def view(incarnation: int) -> StreamView:
        try:
            return await WalReader(store, incarnation, known=known).tail()
        except (DamagedError, UnsupportedError, WalStoreUnavailableError) as error:
            return error

    incarnations = sorted({part.incarnation for part in parts})
    views = await runtime.gather(*(view(incarnation) for incarnation in incarnations))
    return dict(zip(incarnations, views, strict=True))


class NeveSource:
    """One partition: its streams in the cluster log, and its manifest."""

    gaps_allowed = False
    remedy = (
        "`neve storage verify URL` lists the damaged offsets and the `neve storage skip` commands "
        "that let readers continue"
    )

    def __init__(
        self,
        store: Store,
        cluster: ClusterLog,
        name: PartitionName,
        known: DirectoryCache[TailObject] | None = None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._known = known
        self._tiered: Resolved | None = None
        self._views: tuple[tuple[StreamPart, ...], Mapping[int, StreamView]] | None = None
        topic = cluster.state.topic(name.topic)
        if topic is None:
            raise NoTopicError(f"there is no topic {name.topic!r}")
        self.name = name
        self.topic_id = topic.id_bytes
        self.manifest = Manifest(store, manifest_keys(topic.name, topic.id_bytes, name.partition))

    @property
    def partition(self) -> PartitionState:
        """The partition's state as of the last cluster log read.

        Raises NoTopicError if its topic was deleted.
        """
        topic = self._cluster.state.topics.get(self.topic_id.hex())
        if topic is None:
            raise NoTopicError(f"topic {self.name.topic!r} was deleted while it was read")
        return topic.partitions[self.name.partition]

    @property
    def parts(self) -> tuple[StreamPart, ...]:
        return self.partition.streams

    def looked_at(self, parts: tuple[StreamPart, ...], views: Mapping[int, StreamView]) -> None:
        """Use these views of `parts` at the next resolve.

        The caller must have read the cluster log before the streams.
        """
        self._views = (parts, views)

    async def is_tiered_to(self, end: int) -> bool:
        """Return whether segments hold all offsets below `end`. If so, `resolve` reads no stream.

        Records in segments stay committed, so streams are only needed to find the partition's end.
        """
        if end >= OFFSET_MAX:
            return False
        try:
            state = await self.manifest.refresh()
        except PARTITION_ERRORS:
            return False  # the next resolve raises the error
        if state.next < end:
            return False
        self._tiered = Resolved(state.start, max(state.start, state.next), (), state.skips)
        return True

    async def resolve(self) -> Resolved:
        tiered, self._tiered = self._tiered, None
        if tiered is not None:
            return tiered
        for attempt in range(RESOLVE_ATTEMPTS_MAX):
            parts, views = await self._read_streams()
            state = await self.manifest.refresh()
            tails = {number: view for number, view in views.items() if isinstance(view, StreamTail)}
            broken = next(
                (view for part in parts if isinstance(view := views[part.incarnation], NeveError)),
                None,
            )
            if broken is not None:
                if await self._parts_changed(parts):
                    continue  # the partition may no longer need the broken stream
                return Resolved(state.start, max(state.start, state.next), (), state.skips, broken)
            tail = assemble(self.topic_id, self.name.partition, parts, tails, state)
            if tail is not None:
                return Resolved(state.start, tail.end, tail.slices, state.skips)
            await runtime.sleep(RESOLVE_PAUSE_SECONDS * min(attempt, 4))
        raise DamagedError(
            self.manifest.keys.prefix,
            f"committed offsets of {self.name} are neither in a segment nor in a stream: run "
            "`neve storage verify`",
        )

    async def _parts_changed(self, parts: tuple[StreamPart, ...]) -> bool:
        await self._cluster.refresh()
        return self.parts != parts

    async def _read_streams(self) -> tuple[tuple[StreamPart, ...], Mapping[int, StreamView]]:
        given, self._views = self._views, None
        if given is not None:
            return given
        await self._cluster.refresh()
        parts = self.parts
        return parts, await read_views(self._store, parts, self._known)

    async def segments(self, first: int, end: int, *, with_times: bool) -> list[Segment]:
        del with_times  # the manifest lists every segment with its timestamps
        return await self.manifest.segments(first, end - 1)

    async def totals(self) -> tuple[int, int]:
        state = self.manifest.state
        if state.removed:  # the totals of runs still include segments removed since
            rows = await self.manifest.segments()
            return len(rows), sum(row.bytes for row in rows)
        segments = len(state.loose) + sum(run.segments for run in state.runs)
        loose_bytes = sum(segment.bytes for segment in state.loose)
        return segments, loose_bytes + sum(run.bytes for run in state.runs)
