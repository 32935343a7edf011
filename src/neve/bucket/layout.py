"""What a layout of a bucket offers its readers: topics, and where a partition's records lie.

Two exist: Neve's own, and KafScale's files as they are. Everything above this reads both alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from neve.bucket.model import PartitionName, TopicInfo
from neve.errors import NeveError
from neve.log.manifest.records import Segment, Skip
from neve.log.tail import TailSlice


@dataclass(frozen=True)
class Resolved:
    """A partition as it stood at one look: its first offset, its committed end, its tail.

    `failure` is why more than `end` could not be seen; it is raised when a reader gets there.
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
        """Whether offsets that no object holds are passed over, and counted; else it is a loss."""

    @property
    def remedy(self) -> str:
        """What to do about damage of it: which command says more, and what gets past it."""

    async def resolve(self) -> Resolved:
        """Look where the partition's records are now."""

    async def segments(self, first: int, end: int, *, with_times: bool) -> list[Segment]:
        """Return the segments with offsets from `first` up to `end`, as of the last resolve.

        `with_times` asks for the timestamps of segments where that takes requests.
        """

    async def totals(self) -> tuple[int, int]:
        """How many segments are listed in all, and their bytes, as of the last look."""


class News(NamedTuple):
    """What a look at the tails brought for one partition: slices, or that it must be resolved."""

    slices: tuple[TailSlice, ...]
    stale: bool


class Watcher(Protocol):
    """Looks at the tails of many partitions at once, for those who follow them."""

    async def poll(self) -> dict[PartitionName, News]:
        """What is new since the last look, by partition; partitions without news are left out.

        At the first look every partition is stale: whoever resolves it then misses nothing.
        """


class PartitionInfo(NamedTuple):
    """One partition for people to look at. `error` says why some of it could not be seen."""

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
    error: str | None


class StreamInfo(NamedTuple):
    """One WAL stream that some partition still needs."""

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
        """Look which topics there are now."""

    def topics(self) -> list[TopicInfo]:
        """All topics as of the last look, by name."""

    def sources(self, names: Sequence[PartitionName]) -> Sequence[PartitionSource]:
        """Partitions to read, in this order."""

    async def look(
        self, sources: Sequence[PartitionSource], ends: Sequence[int] | None = None
    ) -> None:
        """Look at what partitions share, once for all of them: their next resolve uses it.

        `ends` are the offsets up to which each will be read, where that is known.
        """

    def watcher(self, sources: Sequence[PartitionSource]) -> Watcher:
        """Watch these partitions."""

    async def partition_info(self, source: PartitionSource) -> PartitionInfo:
        """What there is to say about a partition."""

    async def stream_infos(self) -> list[StreamInfo]:
        """The streams that partitions need."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty where the layout has none."""
