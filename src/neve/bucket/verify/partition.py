"""Checks a partition: its manifest, listed segments and bundles, order of offsets, and its tail.

As every reader does, it reads the tail's streams before the manifest.
"""

from __future__ import annotations

import re

from neve import runtime
from neve.bucket.verify import tail as tails_of
from neve.bucket.verify.context import (
    Stray,
    VerifyContext,
    confirmed,
    manifest_of,
    not_given_up,
    segments_of,
    series_of,
    unreadable,
)
from neve.bucket.verify.findings import Finding, PartitionRef, Remedy, Severity, shown
from neve.bucket.verify.runs import check_run
from neve.bucket.verify.segments import SegmentResult, check_segment
from neve.bucket.verify.series import (
    below_checkpoint,
    missing_number,
    number_or_checkpoint,
    unknown_key,
)
from neve.bucket.verify.stream import Streams
from neve.cluster.state import PartitionState
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.downloads import fetch_checked
from neve.log.keys import segment_name
from neve.log.manifest.records import Segment, Skip
from neve.log.manifest.skips import OffsetRange
from neve.log.manifest.state import ManifestState
from neve.log.segment.bundle import decode_bundle
from neve.log.series import greatest_checkpoint
from neve.runtime import wall_from_ms
from neve.store.port import ObjectInfo

# The tail is read up to this often, to distinguish lost records from records that moved.
TAIL_ATTEMPTS_MAX = 3
TAIL_PAUSE_SECONDS = 0.1
_RUN = re.compile(r"run/[0-9a-f]{16}")


class PartitionCheck:
    """Checks one partition of a live topic."""

    def __init__(
        self, context: VerifyContext, place: PartitionRef, state: PartitionState, streams: Streams
    ) -> None:
        self._context = context
        self._state = state  # as of before the streams were read
        self._streams = streams
        self._manifest = manifest_of(context.store, place)
        self.place = place

    @property
    def incarnations(self) -> set[int]:
        """The incarnations of the streams that the partition needs."""
        return {part.incarnation for part in self._state.streams}

    async def check(self) -> None:
        """Check the whole partition and report findings, unless its topic was deleted meanwhile."""
        await self.check_listed()
        await self.check_tail()

    async def check_listed(self) -> None:
        """Check the manifest and everything that it lists. No stream is read."""
        findings: list[Finding] = []
        try:
            await self._context.watch(self)
            await self._manifest.refresh()
            findings += await confirmed(self._missing_numbers)
            findings += await confirmed(self._runs)
            findings += await confirmed(self._order)
            findings += await self._segments()
            findings += await confirmed(self._state_bundle)
            findings += self._skips()
        except (DamagedError, UnsupportedError) as error:
            found = unreadable(error, self._manifest.keys.prefix, self.place)
            if found.key not in {row.key for row in findings}:
                findings.append(found)
        self._context.report.counts["partitions"] += 1
        self._context.report.counts["doomed"] += len(self._manifest.state.doomed)
        await self._report(findings)

    async def check_tail(self) -> None:
        """Check that the streams hold all committed offsets above the segments."""
        try:
            findings = await self._tail()
        except (DamagedError, UnsupportedError):
            return  # the manifest cannot be read: `check_listed` reports that
        await self._report(findings)

    async def _report(self, findings: list[Finding]) -> None:
        if findings and await self._context.partition_now(self.place) is None:
            return
        for finding in findings:
            self._context.report.add(finding)

    # -- the manifest ------------------------------------------------------------------------

    async def _missing_numbers(self) -> list[Finding]:
        rows = await self._context.store.list(self._manifest.keys.prefix)
        await self._manifest.refresh()
        position = self._manifest.view.position
        return missing_number(self._manifest.keys, rows, position, self.place)

    async def _listed(self) -> tuple[ManifestState, list[Segment]]:
        """Return the newest manifest state and the segments that it lists."""
        await self._manifest.refresh()
        while True:
            state = self._manifest.state
            segments = await self._manifest.segments()
            if self._manifest.state is state:
                return state, segments

    async def _runs(self) -> list[Finding]:
        """Check that each run matches what the manifest says of it."""
        findings = []
        for run in (await self._manifest.refresh()).runs:
            problem = await check_run(self._context, self._manifest.keys, run)
            if problem:
                findings.append(
                    Finding(
                        severity=Severity.DAMAGE,
                        key=run.key,
                        what=f"it lists segments of offsets {run.base} to {run.last} of "
                        f"{self.place}: {problem}",
                        do="without it they cannot be found: bring it back from a copy or an older "
                        "version of the bucket",
                        place=self.place,
                    )
                )
        return findings

    async def _order(self) -> list[Finding]:
        """Check that segments are contiguous from the log's start to the start of the tail."""
        state, segments = await self._listed()
        findings = []
        gaps: list[OffsetRange] = []
        expected = state.start
        for segment in segments:
            if segment.base > expected:
                gaps.append((expected, segment.base))
            elif segment.base < expected and segment is not segments[0]:
                findings.append(self._overlap(segment, expected))
            expected = max(expected, segment.last + 1)
        if expected < state.next:
            gaps.append((expected, state.next))
        lost = not_given_up(gaps, state.skips)
        if lost:
            findings.append(
                Finding(
                    severity=Severity.GAP,
                    key=self._manifest.keys.prefix,
                    what=f"no listed segment holds offsets {shown(lost)} of {self.place}",
                    do=f"give them up: {self._context.skip_commands(self.place, lost)}",
                    place=self.place,
                    lost=tuple(lost),
                )
            )
        return findings

    def _overlap(self, segment: Segment, expected: int) -> Finding:
        return Finding(
            severity=Severity.DAMAGE,
            key=segment.key,
            what=f"it is listed from offset {segment.base} on, and the one before it ends at "
            f"{expected - 1}: two segments hold the same offsets",
            do="readers take the first; report this as a mistake of Neve's",
            place=self.place,
        )

    def _skips(self) -> list[Finding]:
        """Return a finding for each recorded skip that is not entirely below the log's start."""
        state = self._manifest.state
        return [
            Finding(
                severity=Severity.SKIPPED,
                key=self._manifest.keys.prefix,
                what=f"{_given_up(skip, self.place)} given up for lost "
                f"on {wall_from_ms(skip.at_ms):%Y-%m-%d %H:%M:%S} UTC: {skip.reason}",
                place=self.place,
            )
            for skip in state.skips
            if skip.last >= state.start
        ]

    # -- segments and bundles ----------------------------------------------------------------

    async def _segments(self) -> list[Finding]:
        found: dict[str, list[Finding]] = {}
        _, segments = await self._listed()

        async def check(segment: Segment) -> None:
            result, segment = await self._checked(segment)
            self._context.report.read("segments", segment.bytes + segment.index_bytes)
            if not result.is_well:
                found[segment.key] = self._explained(segment, result)

        await self._context.bounds.each(segments, check)
        return [each for segment in segments for each in found.get(segment.key, [])]

    async def _checked(self, segment: Segment) -> tuple[SegmentResult, Segment]:
        """Check a segment until the result is for the segment as the newest manifest lists it."""
        while True:
            result = await check_segment(self._context.store, self._context.bounds, segment)
            if result.is_well:
                return result, segment
            await self._manifest.refresh()
            now = await self._manifest.segments(segment.base, segment.last)
            listed = next((row for row in now if row.key == segment.key), None)
            if listed is None:
                return SegmentResult(), segment  # merged or expired during the check
            if listed == segment:
                return result, segment
            segment = listed

    def _explained(self, segment: Segment, result: SegmentResult) -> list[Finding]:
        findings = []
        if result.segment_fault:
            findings.append(self._damaged_segment(segment, result))
        if result.index_problem and segment.index_key is not None:
            findings.append(self._damaged_index(segment, result))
        return findings

    def _damaged_segment(self, segment: Segment, result: SegmentResult) -> Finding:
        what = f"offsets {segment.base} to {segment.last} of {self.place}: {result.segment_fault}"
        held = [(max(first, self._manifest.state.start), end) for first, end in result.lost]
        held = [(first, end) for first, end in held if first < end]
        lost = not_given_up(held, self._manifest.state.skips)
        if held and not lost:
            return Finding(
                severity=Severity.SKIPPED,
                key=segment.key,
                what=f"{what}; what cannot be read of it is given up for lost",
                place=self.place,
            )
        if not lost:
            return Finding(
                severity=Severity.DAMAGE,
                key=segment.key,
                what=what,
                do="its records can all be read through its index: none is lost; bring it back "
                "from a copy, or wait until it is merged or expires",
                place=self.place,
            )
        return Finding(
            severity=Severity.DAMAGE,
            key=segment.key,
            what=f"{what}; offsets {shown(lost)} cannot be read",
            do="bring it back from a copy or an older version of the bucket, or give these "
            f"offsets up: {self._context.skip_commands(self.place, lost)}",
            place=self.place,
            lost=tuple(lost),
        )

    def _damaged_index(self, segment: Segment, result: SegmentResult) -> Finding:
        assert segment.index_key is not None
        what = f"the index of {segment.key}: {result.index_problem}"
        if not segment.owned:
            return Finding(
                severity=Severity.NOTE,
                key=segment.index_key,
                what=f"{what}; the segment was imported and is read without it",
                place=self.place,
            )
        healthy = not result.segment_fault
        return Finding(
            severity=Severity.DAMAGE,
            key=segment.index_key,
            what=what,
            do="reads are slower and right; --repair rebuilds it from its segment"
            if healthy
            else "it cannot be rebuilt, since its segment is damaged too",
            remedy=Remedy.RESTORE_INDEX if healthy else None,
            place=self.place,
        )

    async def _state_bundle(self) -> list[Finding]:
        kept = (await self._manifest.refresh()).state_bundle
        if kept is None:
            return []
        try:
            bundle = await fetch_checked(
                self._context.store,
                kept.key,
                kept.bytes_max,
                lambda data: decode_bundle(data, kept.key),
            )
            bundle.check_all()
        except NotFoundError:
            reason = "it is listed but missing"
        except (DamagedError, UnsupportedError) as error:
            reason = getattr(error, "reason", str(error))
        else:
            self._context.report.read("state_bundles", kept.bytes)
            return []
        return [
            Finding(
                severity=Severity.DAMAGE,
                key=kept.key,
                what=f"{self.place} is empty below offset {kept.end} and this was to keep its "
                f"producers and epochs: {reason}",
                do="no record is lost, duplicates may not be known as such; it is replaced when "
                "the next segment is written",
                place=self.place,
            )
        ]

    # -- the tail ----------------------------------------------------------------------------

    async def _tail(self) -> list[Finding]:
        """Check that the streams hold all offsets above the segments.

        Reading in this order makes the result correct: the cluster state, then the streams that it
        names, then the manifest. If something is wrong, all three are read again.
        """
        state: PartitionState | None = self._state
        findings: list[Finding] = []
        for attempt in range(TAIL_ATTEMPTS_MAX):
            if attempt:
                await runtime.sleep(TAIL_PAUSE_SECONDS)
                state = await self._context.partition_now(self.place)
            if state is None:
                return []
            results = await self._streams.results(
                (part.incarnation for part in state.streams), fresh=attempt > 0
            )
            manifest = await self._manifest.refresh()
            walked = {result.tail.incarnation: result.tail for result in results}
            gaps, end = tails_of.tail_gaps(self.place, state.streams, walked, manifest)
            findings = [
                *tails_of.gap_findings(self._context, self.place, gaps),
                *tails_of.slice_findings(self._context, self.place, results, manifest),
            ]
            if not findings:
                self._context.report.counts["offsets"] += max(0, end - manifest.start)
                break
        return findings

    # -- strays ------------------------------------------------------------------------------

    async def strays(self) -> list[Stray]:
        """Return the partition's unlisted objects, and numbers below its greatest checkpoint."""
        keys = self._manifest.keys
        rows = [
            *await self._context.store.list(keys.prefix),
            *await self._context.store.list(segments_of(self.place)),
        ]
        try:
            known = await self._known()
        except (DamagedError, UnsupportedError):
            return []  # reported as damage; without the manifest nothing is known to be unlisted
        greatest = await greatest_checkpoint(self._context.store, keys) or 0
        found = below_checkpoint(keys, rows, greatest, Remedy.TRIM_MANIFEST, place=self.place)
        for row in rows:
            if row.key not in known and number_or_checkpoint(keys, row.key) is None:
                found.append(self._unlisted(row))
        if found and await self._context.partition_now(self.place) is None:
            return []  # its topic was deleted
        return found

    async def _known(self) -> set[str]:
        """Return every key that the newest manifest mentions, doomed ones included."""
        state, segments = await self._listed()
        known: set[str] = set()
        for segment in (*segments, *state.loose):
            known.add(segment.key)
            if segment.index_key is not None:
                known.add(segment.index_key)
        known |= {run.key for run in state.runs} | {run.key for run in state.doomed_runs}
        known |= set(state.doomed) | {row.index_key for row in state.reindexed}
        if state.state_bundle is not None:
            known.add(state.state_bundle.key)
        return known

    def _unlisted(self, row: ObjectInfo) -> Stray:
        prefix = series_of(self.place).prefix
        is_run = row.key.startswith(prefix) and _RUN.fullmatch(row.key, len(prefix))
        name = segment_name(row.key)
        if name is None and not is_run:
            return unknown_key(row, segments_of(self.place), self.place)
        kind = "a run" if name is None else "a segment" if name.suffix == "kfs" else "an index"
        return Stray(
            row,
            Finding(
                severity=Severity.ORPHAN,
                key=row.key,
                what=f"{kind} of {self.place} that its manifest does not list: left by an upload "
                "or a merge that did not end",
                do="harmless; --repair dooms and removes it",
                remedy=Remedy.DOOM,
                place=self.place,
            ),
        )


def partitions_of(context: VerifyContext, streams: Streams) -> list[PartitionCheck]:
    """Return a check of each partition of each live topic, as of the last cluster log read."""
    return [
        PartitionCheck(context, PartitionRef(topic.name, topic.topic_id, number), state, streams)
        for topic in context.cluster.state.topics.values()
        for number, state in enumerate(topic.partitions)
    ]


def _given_up(skip: Skip, place: PartitionRef) -> str:
    if skip.end_known:
        return f"offsets {skip.first} to {skip.last} of {place} were"
    return (
        f"records of {place} from offset {skip.first} on, end not known (the log continues at "
        f"{skip.last + 1}), were"
    )
