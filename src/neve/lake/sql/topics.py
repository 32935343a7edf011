"""Topics as relations: their columns, and what a query reads of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from neve.bucket.sync_bucket import Bucket
from neve.lake.sql.model import RelationPlan, RelationRead
from neve.lake.sql.ranges import HIGHEST, LOWEST, Ranges

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
CHEAPEST = "offset"
"""The column to read if a query only counts rows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENTS_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The range of datetime: the years 1 to 9999."""


def range_options(ranges: Ranges) -> dict[str, str]:
    """Convert ranges to options of the source `neve`, which takes no negative numbers."""
    if ranges.empty:
        return {"toOffset": "0"}
    offsets, times = ranges.offsets, ranges.times_ms
    found = {}
    if offsets.first > 0:
        found["fromOffset"] = str(offsets.first)
    if offsets.end != HIGHEST:
        found["toOffset"] = str(max(0, offsets.end))
    if times.first > 0:
        found["fromTimestamp"] = str(times.first)
    if times.end != HIGHEST:
        found["toTimestamp"] = str(max(0, times.end))
    if ranges.partitions is not None:
        # The source rejects negative partitions, which cannot exist.
        known = sorted(number for number in ranges.partitions if number >= 0)
        return {**found, "partitions": ",".join(map(str, known))} if known else {"toOffset": "0"}
    return found


def _moment(milliseconds: int) -> datetime | None:
    lowest, highest = _MOMENTS_MS
    if not lowest < milliseconds < highest:
        return None
    return _EPOCH + timedelta(milliseconds=milliseconds)


def topic_plan(bucket: Bucket, read: RelationRead) -> RelationPlan:
    """Plan from the manifests which segments will be read. Reads no records."""
    ranges = read.ranges
    planned = pruned = bytes_planned = bytes_pruned = 0
    notes: list[str] = []
    existing = bucket.topic(read.relation.name).partitions
    wanted = [n for n in existing if ranges.partitions is None or n in ranges.partitions]
    for plan in bucket.plan(read.relation.name, None, **_bounds(ranges)):
        mine = plan.partition in wanted and not ranges.empty
        planned += plan.segments_planned if mine else 0
        bytes_planned += plan.bytes_planned if mine else 0
        pruned += plan.segments_pruned + (0 if mine else plan.segments_planned)
        bytes_pruned += plan.bytes_pruned + (0 if mine else plan.bytes_planned)
        if plan.failure is not None and mine:
            notes.append(f"partition {plan.partition} cannot be read: {plan.failure}")
    return RelationPlan(
        str(read.relation),
        "topic",
        read.reference.alias,
        read.columns,
        ranges_text(ranges),
        planned,
        pruned,
        bytes_planned,
        bytes_pruned,
        tuple(notes),
    )


def _bounds(ranges: Ranges) -> dict[str, int | None]:
    offsets, times = ranges.offsets, ranges.times_ms
    return {
        "from_offset": max(0, offsets.first) if offsets.first != LOWEST else None,
        "to_offset": max(0, offsets.end) if offsets.end != HIGHEST else None,
        "from_timestamp": times.first if times.first != LOWEST else None,
        "to_timestamp": times.end if times.end != HIGHEST else None,
    }


def ranges_text(ranges: Ranges) -> str:
    """Format ranges for EXPLAIN."""
    found = []
    if ranges.partitions is not None:
        found.append(f"partition in ({', '.join(map(str, sorted(ranges.partitions)))})")
    if ranges.offsets.first != LOWEST:
        found.append(f"offset >= {ranges.offsets.first}")
    if ranges.offsets.end != HIGHEST:
        found.append(f"offset < {ranges.offsets.end}")
    for sign, at in ((">=", ranges.times_ms.first), ("<", ranges.times_ms.end)):
        if at not in (LOWEST, HIGHEST):
            moment = _moment(at)
            found.append(f"timestamp {sign} {moment.isoformat() if moment else at}")
    return " and ".join(found)
