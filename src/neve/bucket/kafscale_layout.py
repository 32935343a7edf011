"""KafScale's layout, read in place: `{namespace}/{topic}/{partition}/segment-*.kfs`.

KafScale keeps no list of segments, so the bucket's listing is used. A `.kfs` is read with its
`.index` and `.kfst` if they are sound, and without them otherwise. Readers pass over and count
offsets that no segment holds: KafScale can lose a write that way without any trace. If two segments
hold the same offset, the one with the higher base offset is read, as in KafScale's own reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from neve import runtime
from neve.bucket.layout import (
    News,
    PartitionInfo,
    PartitionSource,
    Resolved,
    StreamInfo,
    Watcher,
)
from neve.bucket.model import PartitionName, TopicInfo
from neve.cluster.log import NoClusterError, NoTopicError
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.downloads import fetch_checked, fetch_range_checked
from neve.log.manifest.records import NO_CRC, Segment
from neve.log.reading.spans import TIME_MAX, TIME_MIN
from neve.log.segment import kafscale, kfs
from neve.log.segment.kafscale import ForeignSegment, TimeRange
from neve.store.port import Store


class KafScaleLayout:
    """A KafScale bucket, or a part of one."""

    cluster_id = ""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listed: dict[PartitionName, list[ForeignSegment]] = {}
        self.strays: list[str] = []
        """Indexes and `.kfst` files without a segment, as of the last refresh."""

    async def refresh(self) -> None:
        rows = await self._store.list("")
        listing = kafscale.group_listing((row.key, row.size) for row in rows)
        if not listing.segments and not self._listed:
            raise NoClusterError(
                "no KafScale segment is here (namespace/topic/partition/segment-*.kfs): check the "
                "URL and the layout"
            )
        self.strays = listing.strays
        self._listed = _by_partition(listing.segments)

    def topics(self) -> list[TopicInfo]:
        found: dict[str, list[int]] = {}
        for name in sorted(self._listed):
            found.setdefault(name.topic, []).append(name.partition)
        return [TopicInfo(topic, "", tuple(partitions)) for topic, partitions in found.items()]

    def sources(self, names: Sequence[PartitionName]) -> list[KafScaleSource]:
        return [KafScaleSource(self._store, name, self._of(name)) for name in names]

    async def prepare(
        self, sources: Sequence[PartitionSource], ends: Sequence[int] | None = None
    ) -> None:
        """Do nothing: partitions share only the listing, which each source already has."""

    def _of(self, name: PartitionName) -> list[ForeignSegment]:
        if name not in self._listed:
            raise NoTopicError(f"there is no partition {name.partition} of topic {name.topic!r}")
        return self._listed[name]

    def watcher(self, sources: Sequence[PartitionSource]) -> Watcher:
        return _ListingWatcher([source.name for source in sources])

    async def partition_info(self, source: PartitionSource) -> PartitionInfo:
        assert isinstance(source, KafScaleSource)
        resolved = await source.resolve()
        return PartitionInfo(
            partition=source.name.partition,
            start=resolved.start,
            end=resolved.end,
            segments=len(source.listed),
            segment_bytes=sum(row.segment_bytes for row in source.listed),
            tail_bytes=0,
            streams=(),
            leader=-1,
            epoch=-1,
            skipped=0,
            open_losses=(),
            error=None if resolved.failure is None else str(resolved.failure),
        )

    async def stream_infos(self) -> list[StreamInfo]:
        return []


def _by_partition(
    segments: Iterable[ForeignSegment],
) -> dict[PartitionName, list[ForeignSegment]]:
    """Return segments by partition, in the order of offsets.

    If there are several namespaces, topic names are prefixed with theirs.
    """
    rows = list(segments)
    several = len({row.name.namespace for row in rows}) > 1
    found: dict[PartitionName, list[ForeignSegment]] = {}
    for row in rows:
        qualified = several and row.name.namespace
        topic = f"{row.name.namespace}/{row.name.topic}" if qualified else row.name.topic
        found.setdefault(PartitionName(topic, row.name.partition), []).append(row)
    return {
        name: sorted(each, key=lambda row: row.name.base_offset) for name, each in found.items()
    }


class KafScaleSource:
    """One partition's segments, as listed."""

    gaps_allowed = True
    remedy = (
        "`neve storage verify --layout kafscale URL` checks all its segments; bring this one back "
        "from a copy, or import the topic without it (`neve import kafscale --skip-damaged`)"
    )

    def __init__(self, store: Store, name: PartitionName, listed: list[ForeignSegment]) -> None:
        self._store = store
        self._is_listed = True
        self._times: dict[str, TimeRange | None] = {}
        self._prefix = listed[0].key[: listed[0].key.rindex("/") + 1]
        self._end = 0
        self.name = name
        self.listed = listed

    async def resolve(self) -> Resolved:
        if not self._is_listed:
            rows = await self._store.list(self._prefix)
            found = kafscale.group_listing((row.key, row.size) for row in rows).segments
            self.listed = sorted(
                (row for row in found if row.key.startswith(self._prefix)),
                key=lambda row: row.name.base_offset,
            )
        self._is_listed = False  # the next resolve lists the bucket again
        if not self.listed:
            raise NoTopicError(f"{self.name}: all its segments are gone from {self._prefix}")
        start, last = self.listed[0].name.base_offset, self.listed[-1]
        try:
            self._end = await self._end_of(last)
        except (DamagedError, UnsupportedError) as error:
            self._end = last.name.base_offset
            return Resolved(start, self._end, failure=error)
        return Resolved(start, self._end)

    async def _end_of(self, row: ForeignSegment) -> int:
        """Return the offset after a segment's last one, from its footer."""
        size = row.segment_bytes
        start = max(0, size - kfs.FOOTER_BYTES)
        footer = await fetch_range_checked(
            self._store, row.key, start, size, lambda data: kfs.decode_footer(data, row.key)
        )
        if footer.last_offset < row.name.base_offset:
            raise DamagedError(
                row.key, f"its footer ends at {footer.last_offset}, before its own base"
            )
        return footer.last_offset + 1

    async def segments(self, first: int, end: int, *, with_times: bool) -> list[Segment]:
        found = []
        for index, row in enumerate(self.listed):
            after = (
                self.listed[index + 1].name.base_offset
                if index + 1 < len(self.listed)
                else self._end
            )
            if row.name.base_offset < end and after > first:
                found.append(_described(row, after - 1))
        if not with_times:
            return found
        return await runtime.gather(*(self._with_times(row) for row in found))

    async def totals(self) -> tuple[int, int]:
        return len(self.listed), sum(row.segment_bytes for row in self.listed)

    async def _with_times(self, segment: Segment) -> Segment:
        times = await self._time_range(segment)
        if times is None:
            return segment
        return msgspec.structs.replace(
            segment, min_timestamp=times.min_timestamp, max_timestamp=times.max_timestamp
        )

    async def _time_range(self, segment: Segment) -> TimeRange | None:
        """Return the timestamps in a segment's `.kfst`; None if it is missing, damaged or stale.

        KafScale overwrites segments, so a segment whose offsets differ from its `.kfst` is newer.
        """
        row = next(row for row in self.listed if row.key == segment.key)
        key = row.times_key
        if key is None:
            return None
        if key not in self._times:
            try:
                found: TimeRange | None = await fetch_checked(
                    self._store,
                    key,
                    kafscale.TIMES_BYTES,
                    lambda data: kafscale.decode_times(data, key),
                )
            except (NotFoundError, DamagedError, UnsupportedError):
                found = None
            self._times[key] = found
        found = self._times[key]
        whole = (segment.base, segment.last)
        return (
            found if found is not None and (found.min_offset, found.max_offset) == whole else None
        )


def _described(row: ForeignSegment, last: int) -> Segment:
    """Return a segment as Neve lists one, without the fields that a bucket listing lacks.

    These are the timestamps, the record count and the checksum.
    """
    return Segment(
        key=row.key,
        base=row.name.base_offset,
        last=last,
        bytes=row.segment_bytes,
        records=0,
        min_timestamp=TIME_MIN,
        max_timestamp=TIME_MAX,
        created_ms=0,
        epoch=-1,
        crc=NO_CRC,
        index_key=row.index_key,
        owned=False,
    )


class _ListingWatcher:
    """Marks every partition as stale at each poll: only a new listing can show what is new."""

    def __init__(self, names: Sequence[PartitionName]) -> None:
        self._names = names

    async def poll(self) -> dict[PartitionName, News]:
        return {name: News((), True) for name in self._names}
