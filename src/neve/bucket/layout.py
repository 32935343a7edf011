"""The port to a bucket's layout: its topics, and where a partition's records are.

There are two implementations: Neve's own layout, and KafScale's files in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from neve.bucket.model import PartitionName, TopicInfo
from neve.errors import NeveError
from neve.log.manifest.records import Segment, Skip
from neve.log.manifest.skips import OffsetRange
from neve.log.tail import TailSlice


@dataclass(frozen=True)
class Resolved:
    """A partition at one moment: its first offset, its committed end, its tail.

    `failure` is why nothing after `end` could be resolved; a reader that reaches `end` raises it.
    """

    start: int
    end: int
    tail: tuple[TailSlice, ...] = ()
    skips: tuple[Skip, ...] = ()
    failure: NeveError | None = None


class PartitionSource(Protocol):
    """One partition of a layout."""

    @property
    def name(self) -> PartitionName: ...

    @property
    def gaps_allowed(self) -> bool:
        """Whether readers pass over and count offsets that no object holds, or raise an error."""

    @property
    def remedy(self) -> str:
        """What the user can do about damage; appended to error messages."""

    async def resolve(self) -> Resolved:
        """Find out where the partition's records are now."""

    async def segments(self, first: int, end: int, *, with_times: bool) -> list[Segment]:
        """Return the segments with offsets from `first` up to, not including, `end`.

        They are as of the last resolve. With `with_times`, they include their timestamps even if
        that takes requests.
        """

    async def totals(self) -> tuple[int, int]:
        """Return the number of listed segments and their bytes, as of the last resolve."""


class News(NamedTuple):
    """The result of a poll for one partition: new slices, or `stale` if it must be resolved."""

    slices: tuple[TailSlice, ...]
    stale: bool


class Watcher(Protocol):
    """Polls the tails of many partitions at once."""

    async def poll(self) -> dict[PartitionName, News]:
        """Return what is new since the last poll, by partition.

        At the first poll every partition is stale: a reader that resolves it misses nothing.
        """


class PartitionInfo(NamedTuple):
    """One partition for display. `error` is set if it could not be fully resolved.

    `open_losses` are the offsets over which the log leaps because the end of a loss is not known.
    `skipped` does not count them.
    """

    partition: int
    start: int
    end: int
    segments: int
    segment_bytes: int
    tail_bytes: int
    streams: tuple[int, ...]
    leader: int
    epoch: int
    skipped: int
    open_losses: tuple[OffsetRange, ...]
    error: str | None


class StreamInfo(NamedTuple):
    """One WAL stream that a partition still needs."""

    incarnation: int
    node: int
    checkpoint: int
    position: int
    sealed: bool
    objects: int
    error: str | None


class Layout(Protocol):
    """One bucket in one layout."""

    async def refresh(self) -> None:
        """Read the current list of topics."""

    def topics(self) -> list[TopicInfo]:
        """Return all topics as of the last refresh, by name."""

    def sources(self, names: Sequence[PartitionName]) -> Sequence[PartitionSource]:
        """Return sources of these partitions, in this order."""

    async def prepare(
        self, sources: Sequence[PartitionSource], ends: Sequence[int] | None = None
    ) -> None:
        """Read the objects that partitions share once; the next resolve of each source uses them.

        `ends` are the offsets up to which each source will be read, if known.
        """

    def watcher(self, sources: Sequence[PartitionSource]) -> Watcher:
        """Watch these partitions."""

    async def partition_info(self, source: PartitionSource) -> PartitionInfo:
        """Describe a partition."""

    async def stream_infos(self) -> list[StreamInfo]:
        """Describe the streams that partitions need."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty if the layout has none."""
