"""`AsyncBucket`: a bucket's topics and records, without a broker.

A read yields every committed record of a selection once, in the order of offsets within its
partition, checked to the last byte, or raises an error that names what is wrong. Partitions are
read one after another. If one fails, the others are still read, and its error is raised at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from neve import runtime
from neve.bucket.decode import COLUMNS, RecordDecoder, arrow_schema, decode_arrow
from neve.bucket.follow import Decoding, decoded, follow
from neve.bucket.info import BucketInfo, describe
from neve.bucket.kafscale_layout import KafScaleLayout
from neve.bucket.layout import Layout, PartitionSource
from neve.bucket.model import (
    LATEST,
    PARTITION_ERRORS,
    Bounds,
    Moment,
    Offsets,
    PartitionName,
    Record,
    Selection,
    TopicInfo,
    TopicReplacedError,
    raise_failures,
)
from neve.bucket.neve_layout import NeveLayout
from neve.bucket.partition import PartitionReader, ReadCounters
from neve.bucket.planning import PartitionPlan, plan_partitions
from neve.cluster.log import NoTopicError
from neve.errors import InvalidError, NeveError
from neve.log.downloads import PART_BYTES_DEFAULT
from neve.log.index_cache import IndexCache
from neve.log.prefetch import PrefetchReader
from neve.log.reading.record_chunk import RecordChunk
from neve.log.reading.segment_indexes import SegmentIndexes
from neve.log.remote import BucketRemoteStorage
from neve.log.wal.stores import connect_bucket
from neve.settings import CacheSettings, Settings, load
from neve.store.url import Stack, parse

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Url: TypeAlias = str | os.PathLike[str]
NEAR_BYTES_MAX = 3 * PART_BYTES_DEFAULT
"""Read-ahead from memory and folders: one part being consumed, one waiting, one downloading."""
LayoutName: TypeAlias = Literal["neve", "kafscale"]
LAYOUTS: tuple[LayoutName, ...] = ("neve", "kafscale")
Topics: TypeAlias = str | Sequence[str] | None
Partitions: TypeAlias = int | Iterable[int] | None
GivenSettings: TypeAlias = Settings | Mapping[str, object] | None


def settings_of(given: GivenSettings) -> Settings:
    """Return settings as given, or by name on top of those of the environment."""
    if isinstance(given, Settings):
        return given
    return load(environment=os.environ, flags=given)


class AsyncBucket:
    """A bucket that is open for reading. Made by `connect`; `close` it, or use `async with`."""

    def __init__(
        self, stack: Stack, layout: Layout, indexes: IndexCache, settings: Settings
    ) -> None:
        self._stack = stack
        self._layout = layout
        self._indexes = indexes
        self._settings = settings
        self._counters = ReadCounters()
        self._decoder = RecordDecoder()

    @classmethod
    async def connect(
        cls, url: Url, *, layout: LayoutName = "neve", settings: GivenSettings = None
    ) -> AsyncBucket:
        """Open the bucket at a URL or path. Sends no request."""
        chosen = _near(os.fspath(url), settings_of(settings))
        stack = connect_bucket(os.fspath(url), chosen)
        return await cls.over(stack, layout=layout, settings=chosen)

    @classmethod
    async def over(
        cls, stack: Stack, *, layout: LayoutName = "neve", settings: Settings
    ) -> AsyncBucket:
        """Open a bucket over a connected store, which is closed with the bucket."""
        if layout not in LAYOUTS:
            raise InvalidError(f"there is no layout {layout!r}: use {' or '.join(LAYOUTS)}")
        remote = BucketRemoteStorage(stack.store)
        # KafScale overwrites keys, so its indexes are never kept beyond one opening.
        own = layout == "neve"
        cache = settings.cache if own else CacheSettings(index_bytes=settings.cache.index_bytes)
        indexes = await IndexCache.open(remote, cache)
        found: Layout = (
            NeveLayout(stack.store, settings.reader) if own else KafScaleLayout(stack.store)
        )
        return cls(stack, found, indexes, settings)

    @property
    def skipped(self) -> int:
        """The number of offsets that reads have passed over: skipped, or held by no object."""
        return self._counters.skipped_offsets

    async def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        await self._layout.refresh()
        return self._layout.topics()

    async def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises NoTopicError if it does not exist."""
        await self._layout.refresh()
        return self._topic(name)

    def _topic(self, name: str) -> TopicInfo:
        for topic in self._layout.topics():
            if topic.name == name:
                return topic
        raise NoTopicError(f"there is no topic {name!r} in this bucket")

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset of its next record."""
        (source,) = await self._sources(topic, partition)
        resolved = await source.resolve()
        if resolved.failure is not None:
            raise resolved.failure
        return resolved.start, resolved.end

    async def describe(self, advanced: Callable[[int, int], None] | None = None) -> BucketInfo:
        """Describe the bucket. `advanced` is called with the partitions done and their total."""
        return await describe(self._layout, self._settings.reader.partitions_ahead, advanced)

    async def plan(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> list[PartitionPlan]:
        """Return what a selection would read of each partition, without reading it."""
        bounds = Bounds(from_offset, to_offset, from_timestamp, to_timestamp)
        sources = await self._sources(topic, partitions)
        topics = self._layout.topics()
        await self._layout.prepare(sources)
        at_once = self._settings.reader.partitions_ahead
        return await plan_partitions(sources, topics, bounds, at_once)

    # -- reading -----------------------------------------------------------------------------

    async def read(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Yield every committed record of a selection, up to the end when reading begins."""
        bounds = Bounds(from_offset, to_offset, from_timestamp, to_timestamp)
        async with contextlib.aclosing(self.read_lists(topic, partitions, bounds)) as lists:
            async for rows in lists:
                for row in rows:
                    yield row

    def read_lists(
        self, topic: Topics, partitions: Partitions, bounds: Bounds
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the same records in lists, for callers that have a cost per item."""
        return self._read(topic, partitions, bounds, self._decoder.decode)

    def arrow(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
        columns: Sequence[str] = COLUMNS,
        topic_id: str | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield the same records as Arrow batches, each of one partition.

        Raises TopicReplacedError if the topic's id is not `topic_id`, if that is given.
        """
        bounds = Bounds(from_offset, to_offset, from_timestamp, to_timestamp)
        wanted = tuple(columns)
        arrow_schema(wanted)  # raises at once if a column does not exist

        def decode(
            name: PartitionName, chunks: Sequence[RecordChunk], selection: Selection
        ) -> Iterator[pa.RecordBatch]:
            return decode_arrow(name, chunks, selection, wanted)

        return self._read(topic, partitions, bounds, decode, topic_id)

    async def follow(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = LATEST,
        to_offset: int | Mapping[int, int] | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Yield records as they are committed, by default from the current end on.

        Ends only if every partition reaches `to_offset`.
        """
        bounds = Bounds(from_offset, to_offset)
        lists = await self.follow_lists(topic, partitions, bounds)
        async with contextlib.aclosing(lists):
            async for rows in lists:
                for row in rows:
                    yield row

    async def follow_lists(
        self, topic: Topics, partitions: Partitions, bounds: Bounds
    ) -> AsyncGenerator[list[Record], None]:
        """Return the same records in lists. The first offset is fixed when this returns."""
        sources = await self._sources(topic, partitions)
        failures: dict[PartitionName, NeveError] = {}
        readers: list[PartitionReader] = []
        await self._layout.prepare(sources)
        async for reader, failure in self._opened(sources, bounds):
            if failure is None:
                readers.append(reader)
            else:
                failures[reader.name] = failure
        watcher = self._layout.watcher(sources)
        poll_seconds = self._settings.reader.poll_ms / 1000
        return follow(readers, failures, watcher, poll_seconds, self._decoder.decode)

    async def close(self) -> None:
        """End background work and release connections."""
        try:
            await self._indexes.aclose()
        finally:
            await self._stack.close()

    async def __aenter__(self) -> AsyncBucket:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- parts -------------------------------------------------------------------------------

    async def _sources(
        self, topic: Topics, partitions: Partitions, topic_id: str | None = None
    ) -> Sequence[PartitionSource]:
        await self._layout.refresh()
        names = self._names(topic, partitions)
        for name in names if topic_id is not None else ():
            if (found := self._topic(name.topic).id) != topic_id:
                raise TopicReplacedError(name.topic, str(topic_id), found)
        return self._layout.sources(names)

    def _names(self, topic: Topics, partitions: Partitions) -> list[PartitionName]:
        if topic is None:
            found = self._layout.topics()
        else:
            names = dict.fromkeys([topic] if isinstance(topic, str) else topic)
            found = [self._topic(name) for name in names]
        if partitions is None:
            return [
                PartitionName(each.name, number) for each in found for number in each.partitions
            ]
        if len(found) != 1:
            raise InvalidError(f"partitions were given for {len(found)} topics: name one topic")
        wanted = [partitions] if isinstance(partitions, int) else sorted(set(partitions))
        if unknown := [number for number in wanted if number not in found[0].partitions]:
            raise NoTopicError(
                f"topic {found[0].name!r} has no partition {unknown[0]}: it has "
                f"{_span(found[0].partitions)}"
            )
        return [PartitionName(found[0].name, number) for number in wanted]

    async def _opened(
        self, sources: Sequence[PartitionSource], bounds: Bounds
    ) -> AsyncIterator[tuple[PartitionReader, NeveError | None]]:
        """Yield readers in order. Some partitions are resolved ahead of the requested one."""

        async def opened(source: PartitionSource) -> tuple[PartitionReader, NeveError | None]:
            reader = PartitionReader(
                source,
                bounds.of(source.name.partition),
                SegmentIndexes(self._indexes),
                self._prefetching,
                self._counters,
            )
            try:
                await reader.open()
            except PARTITION_ERRORS as error:
                return reader, error
            return reader, None

        ahead = self._settings.reader.partitions_ahead
        for first in range(0, len(sources), ahead):
            group = sources[first : first + ahead]
            for each in await runtime.gather(*(opened(source) for source in group)):
                yield each

    def _prefetching(self) -> PrefetchReader:
        return PrefetchReader(
            self._stack.store, self._settings.prefetch, ahead=self._stack.prefetch
        )

    async def _read(
        self,
        topic: Topics,
        partitions: Partitions,
        bounds: Bounds,
        decode: Decoding[T],
        topic_id: str | None = None,
    ) -> AsyncGenerator[T, None]:
        sources = await self._sources(topic, partitions, topic_id)
        ends = [bounds.of(source.name.partition).to_offset for source in sources]
        await self._layout.prepare(sources, ends)
        failures: dict[PartitionName, NeveError] = {}
        async for reader, failure in self._opened(sources, bounds):
            if failure is not None:
                failures[reader.name] = failure
                continue
            try:
                async with contextlib.aclosing(decoded(reader, reader.to_end(), decode)) as parts:
                    async for part in parts:
                        yield part
            except PARTITION_ERRORS as error:
                failures[reader.name] = error
        raise_failures(failures)


def _near(url: str, settings: Settings) -> Settings:
    """Return settings with little read-ahead for a local store, so that data stays in CPU caches.

    Also, a disk that serves many reads at once may return the first one last.
    """
    if not parse(url).is_local or settings.store.get_delay_ms:
        return settings
    ahead = min(settings.prefetch.bytes, NEAR_BYTES_MAX)
    return replace(settings, prefetch=replace(settings.prefetch, bytes=ahead))


def _span(partitions: Sequence[int]) -> str:
    if not partitions:
        return "none"
    return f"{partitions[0]} to {partitions[-1]}" if len(partitions) > 1 else str(partitions[0])
