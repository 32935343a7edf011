"""Plans what a selection would read of each partition, from manifests and tails only.

A plan's spans cover every offset of the selection, except those of segments and slices without a
record in the selection's times, and those that skips cover. Offsets that no object holds are a span
of 0 bytes: its reader resolves again, and raises an error if they are lost.

A partition that cannot be planned does not affect the others: its plan has the `failure`, and what
could be resolved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve import runtime
from neve.bucket.layout import PartitionSource, Resolved
from neve.bucket.model import (
    EARLIEST,
    LATEST,
    PARTITION_ERRORS,
    Bounds,
    Selection,
    TopicInfo,
)
from neve.errors import NeveError
from neve.log.manifest.records import Segment
from neve.log.manifest.skips import OffsetRange, clipped
from neve.log.reading.spans import TIME_MAX, TIME_MIN, Span, plan_spans


@dataclass(frozen=True)
class PlannedSpan:
    """Offsets from `first` up to, not including, `end` in one object.

    If the span is a part of the object, `bytes` is estimated in proportion.
    """

    first: int
    end: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    tail: bool


@dataclass(frozen=True)
class PartitionPlan:
    """What a selection reads of one partition.

    `start` and `end` are the log's bounds, `first` and `stop` the selection's within them. `lost`
    counts the selected offsets below the log's start. `skipped` are the selected offsets that were
    given up, and `open_losses` those of losses without a known end, over which the log leaps.
    Pruned segments and bytes are those of the whole partition that are not planned. If `failure` is
    set, `end` is the offset up to which the partition could be resolved.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    first: int
    stop: int
    spans: tuple[PlannedSpan, ...] = ()
    segments_planned: int = 0
    segments_pruned: int = 0
    bytes_planned: int = 0
    bytes_pruned: int = 0
    lost: int = 0
    failure: NeveError | None = None
    skipped: tuple[OffsetRange, ...] = ()
    open_losses: tuple[OffsetRange, ...] = ()


def offsets_left(plan: PartitionPlan, reached: int) -> int:
    """Return how many offsets a reader at `reached` has yet to read, without those of leaps."""
    leapt = clipped(plan.open_losses, reached, plan.stop)
    return plan.stop - reached - sum(end - first for first, end in leapt)


async def plan_partitions(
    sources: Sequence[PartitionSource], topics: Sequence[TopicInfo], bounds: Bounds, at_once: int
) -> list[PartitionPlan]:
    """Return plans in the order of the sources. `at_once` sources are resolved concurrently."""
    ids = {topic.name: topic.id for topic in topics}
    found: list[PartitionPlan] = []
    for begin in range(0, len(sources), at_once):
        found += await runtime.gather(
            *(
                _planned(source, ids[source.name.topic], bounds.of(source.name.partition))
                for source in sources[begin : begin + at_once]
            )
        )
    return found


async def _planned(source: PartitionSource, topic_id: str, selection: Selection) -> PartitionPlan:
    try:
        resolved = await source.resolve()
        return await _of(source, topic_id, selection, resolved)
    except PARTITION_ERRORS as error:
        topic, partition = source.name
        return PartitionPlan(topic, topic_id, partition, 0, 0, 0, 0, failure=error)


async def _of(
    source: PartitionSource, topic_id: str, selection: Selection, resolved: Resolved
) -> PartitionPlan:
    first, lost = _first(selection, resolved)
    stop = max(first, min(resolved.end, selection.to_offset))
    segments: list[Segment] = []
    if first < stop:
        segments = await source.segments(first, stop, with_times=selection.by_time)
    found = plan_spans(first, stop, segments, resolved.tail, resolved.skips, times=selection.times)
    planned = {span.key for span in found.spans if isinstance(span.holder, Segment)}
    spans = [_described(span) for span in found.spans]
    spans += [PlannedSpan(*hole, 0, TIME_MIN, TIME_MAX, tail=False) for hole in found.missing]
    segments_all, bytes_all = await source.totals()
    bytes_all += sum(row.entry.length for row in resolved.tail)
    bytes_planned = sum(span.bytes for span in spans)
    topic, partition = source.name
    return PartitionPlan(
        topic,
        topic_id,
        partition,
        resolved.start,
        resolved.end,
        first,
        stop,
        tuple(sorted(spans, key=lambda span: span.first)),
        len(planned),
        max(0, segments_all - len(planned)),
        bytes_planned,
        max(0, bytes_all - bytes_planned),
        lost,
        resolved.failure,
        tuple(found.skipped),
        tuple(found.open_losses),
    )


def _first(selection: Selection, resolved: Resolved) -> tuple[int, int]:
    """Return the offset to begin at, within the log, and how many offsets before it are gone."""
    asked = selection.from_offset
    if asked == EARLIEST:
        return resolved.start, 0
    if asked == LATEST:
        return resolved.end, 0
    first = int(asked)
    lost = max(0, min(resolved.start, selection.to_offset) - first)
    return min(max(first, resolved.start), resolved.end), lost


def _described(span: Span) -> PlannedSpan:
    tail = not isinstance(span.holder, Segment)
    return PlannedSpan(span.first, span.end, span.size, *span.times, tail=tail)
