"""Applies a topic's retention to one partition, as its leader would.

One manifest number moves the log's start and dooms the segments below it. Only segments expire
here: records that are not tiered yet are left to the leader, which may be tiering them. Nothing is
expired by age if this machine's clock differs much from the store's.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve import runtime
from neve.bucket.maintain.clock import SKEW_MAX_MS, check_clock
from neve.bucket.maintain.commit import listed_now
from neve.bucket.maintain.guard import MaintainedPartition, open_partition
from neve.bucket.model import PartitionName
from neve.bucket.neve_layout import NeveLayout
from neve.cluster.broker_config import topic_defaults
from neve.cluster.topic_config import TopicConfig
from neve.errors import UnavailableError
from neve.log.log_start import start_by_age, start_by_size
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment, Start, removal
from neve.log.segment.state_table import is_internal
from neve.settings import Settings
from neve.store.port import Store

ATTEMPTS_MAX = 20


@dataclass
class ExpireResult:
    """What was done to one partition, or what a dry run would do."""

    topic: str
    partition: int
    start_before: int = 0
    start: int = 0
    segments: int = 0
    bytes: int = 0
    collected: int = 0


async def expire_partition(
    store: Store,
    topic: str,
    partition: int,
    *,
    clock_checked: bool = False,
    skew_max_ms: int = SKEW_MAX_MS,
    collect: bool = True,
    dry_run: bool = False,
    settings: Settings | None = None,
) -> ExpireResult:
    """Drop the oldest segments that the topic's configs no longer keep.

    `clock_checked` means that the caller has already checked the clock. A dry run does not check
    it, because that writes an object.
    """
    chosen = settings or Settings()
    opened = await open_partition(store, topic, partition, chosen)
    defaults = topic_defaults(opened.cluster.state, opened.state.leader)
    config = TopicConfig.of(opened.topic.configs, chosen.segment, defaults)
    if config.retention_ms >= 0 and not clock_checked and not dry_run:
        await check_clock(opened.store, skew_max_ms)
    state, segments = await listed_now(opened.manifest)
    start = await _start(opened, segments, state.start, config, chosen)
    result = ExpireResult(topic, partition, start_before=state.start, start=start)
    gone = [row for row in segments if row.last < start]
    if not dry_run:
        gone = await _move(opened.manifest, start)
        await opened.manifest.checkpoint(chosen.segment.checkpoint_numbers)
        if collect:
            result.collected = len(await opened.manifest.collect())
    result.segments, result.bytes = len(gone), sum(row.bytes for row in gone)
    return result


async def _start(
    opened: MaintainedPartition,
    segments: list[Segment],
    start: int,
    config: TopicConfig,
    settings: Settings,
) -> int:
    if is_internal(opened.place.topic):
        # The last bundle has the newest state table. The one before it is kept to rebuild it.
        return max(start, segments[-2].base) if len(segments) > 1 else start
    if config.retention_ms >= 0:
        start = start_by_age(segments, runtime.now_ms() - config.retention_ms, start)
    if config.retention_bytes >= 0:
        tail_bytes = await _tail_bytes(opened, settings)
        start = start_by_size(segments, config.retention_bytes, tail_bytes, start)
    return start


async def _tail_bytes(opened: MaintainedPartition, settings: Settings) -> int:
    """Return the bytes that are not tiered; a slice that is tiered in part counts as tiered."""
    layout = NeveLayout(opened.store, settings.reader)
    await layout.refresh()
    (source,) = layout.sources([PartitionName(opened.place.topic, opened.place.partition)])
    resolved = await source.resolve()
    tiered = source.manifest.state.next
    return sum(row.entry.length for row in resolved.tail if row.entry.base_offset >= tiered)


async def _move(manifest: Manifest, start: int) -> list[Segment]:
    """Raise the log's start to `start`, and return the segments that were dropped."""
    for _ in range(ATTEMPTS_MAX):
        state = await manifest.refresh()
        base = manifest.view
        if start <= state.start:
            return []
        gone = [row for row in await manifest.segments(0, start - 1) if row.last < start]
        if await manifest.change_at(base, [Start(start, tuple(map(removal, gone)))]):
            return gone
    raise UnavailableError(manifest.keys.prefix, "it changes faster than its start can be moved")
