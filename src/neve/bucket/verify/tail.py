"""Checks that the streams hold all committed offsets of a partition above its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neve.bucket.verify.context import VerifyContext, not_given_up, segments_of
from neve.bucket.verify.findings import Finding, PartitionRef, Severity, shown
from neve.bucket.verify.stream import DamagedSlice, StreamResult
from neve.cluster.state import StreamPart
from neve.log.manifest.skips import OffsetRange
from neve.log.manifest.state import ManifestState
from neve.log.reading.spans import plan_spans
from neve.log.tail import committed_slices, promised_end
from neve.log.wal.reader import StreamTail


def tail_gaps(
    place: PartitionRef,
    parts: Sequence[StreamPart],
    tails: Mapping[int, StreamTail],
    manifest: ManifestState,
) -> tuple[list[OffsetRange], int]:
    """Return offsets above the segments that no slice or skip covers, and the tail's end."""
    partition = bytes.fromhex(place.topic_id), place.partition
    slices = committed_slices(*partition, parts, tails)
    first = max(manifest.next, manifest.start)
    ends = [row.entry.last_offset + 1 for row in slices]
    end = max(first, promised_end(*partition, parts, tails), *ends)
    return list(plan_spans(first, end, (), slices, manifest.skips).missing), end


def gap_findings(
    context: VerifyContext, place: PartitionRef, gaps: Sequence[OffsetRange]
) -> list[Finding]:
    if not gaps:
        return []
    return [
        Finding(
            severity=Severity.GAP,
            key=segments_of(place),
            what=f"committed offsets {shown(list(gaps))} of {place} are in no segment and in no "
            "stream",
            do=f"bring their objects back, or give them up: {context.skip_commands(place, gaps)}",
            place=place,
            lost=tuple(gaps),
        )
    ]


def slice_findings(
    context: VerifyContext,
    place: PartitionRef,
    streams: Sequence[StreamResult],
    manifest: ManifestState,
) -> list[Finding]:
    """Return a finding for each damaged slice of a partition, with the offsets that it loses."""
    topic_id = bytes.fromhex(place.topic_id)
    return [
        _slice_finding(context, place, bad, manifest)
        for stream in streams
        for bad in stream.bad_slices
        if (bad.entry.topic_id, bad.entry.partition) == (topic_id, place.partition)
    ]


def _slice_finding(
    context: VerifyContext, place: PartitionRef, bad: DamagedSlice, manifest: ManifestState
) -> Finding:
    first = max(bad.entry.base_offset, manifest.next, manifest.start)
    held = [(first, bad.entry.last_offset + 1)] if first <= bad.entry.last_offset else []
    lost = not_given_up(held, manifest.skips)
    what = f"offsets {bad.entry.base_offset} to {bad.entry.last_offset} of {place}: {bad.reason}"
    if lost:
        return Finding(
            severity=Severity.DAMAGE,
            key=bad.key,
            what=what,
            do=f"bring it back, or give its offsets up: {context.skip_commands(place, lost)}",
            place=place,
            lost=tuple(lost),
        )
    if held:
        return Finding(
            severity=Severity.SKIPPED,
            key=bad.key,
            what=f"{what}; given up for lost",
            place=place,
        )
    return Finding(
        severity=Severity.DAMAGE,
        key=bad.key,
        what=f"{what}; its records are in segments, so none is lost",
        do="bring it back from a copy, or wait: it goes with the stream's next roll-up",
        place=place,
    )
