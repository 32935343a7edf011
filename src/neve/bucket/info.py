"""Summarizes a bucket's topics, partitions and streams, as `neve storage ls` shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from neve import runtime
from neve.bucket.layout import Layout, PartitionInfo, PartitionSource, StreamInfo
from neve.bucket.model import PARTITION_ERRORS, PartitionName


class TopicListing(NamedTuple):
    """A topic and what each of its partitions holds."""

    name: str
    id: str
    partitions: tuple[PartitionInfo, ...]


class BucketInfo(NamedTuple):
    """A summary of the bucket. A partition that cannot be read carries its error."""

    cluster_id: str
    topics: tuple[TopicListing, ...]
    streams: tuple[StreamInfo, ...]

    @property
    def errors(self) -> list[str]:
        """One line for each partition and stream that could not be read."""
        partitions = [
            f"{topic.name}-{row.partition}: {row.error}"
            for topic in self.topics
            for row in topic.partitions
            if row.error is not None
        ]
        return partitions + [
            f"stream {stream.incarnation}: {stream.error}"
            for stream in self.streams
            if stream.error is not None
        ]


async def describe(
    layout: Layout, at_once: int, advanced: Callable[[int, int], None] | None
) -> BucketInfo:
    """Describe the bucket, reading `at_once` partitions concurrently.

    `advanced` is called with the number of partitions done and their total.
    """
    await layout.refresh()
    topics = layout.topics()
    names = [PartitionName(topic.name, number) for topic in topics for number in topic.partitions]
    sources = layout.sources(names)
    await layout.prepare(sources)
    found: dict[PartitionName, PartitionInfo] = {}
    for first in range(0, len(sources), at_once):
        group = sources[first : first + at_once]
        infos = await runtime.gather(*(_info(layout, source) for source in group))
        found.update(zip([source.name for source in group], infos, strict=True))
        if advanced is not None:
            advanced(len(found), len(sources))
    listings = tuple(
        TopicListing(topic.name, topic.id, _rows(topic.name, topic.partitions, found))
        for topic in topics
    )
    return BucketInfo(layout.cluster_id, listings, tuple(await layout.stream_infos()))


def _rows(
    topic: str, partitions: Sequence[int], found: dict[PartitionName, PartitionInfo]
) -> tuple[PartitionInfo, ...]:
    return tuple(found[PartitionName(topic, number)] for number in partitions)


async def _info(layout: Layout, source: PartitionSource) -> PartitionInfo:
    try:
        return await layout.partition_info(source)
    except PARTITION_ERRORS as error:
        number = source.name.partition
        return PartitionInfo(number, -1, -1, 0, 0, 0, (), -1, -1, 0, (), str(error))
