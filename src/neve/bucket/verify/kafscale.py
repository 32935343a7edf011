"""Verifies a KafScale bucket: every segment, index and `.kfst`, and that offsets are contiguous.

Nothing is written. KafScale keeps no list of its segments, so the bucket's listing is used: a
missing segment shows as a gap between its neighbours, and a missing last segment is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neve.bucket.maintain.kafscale_files import Examined, examine, list_kafscale
from neve.bucket.model import PartitionName
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.findings import Finding, Progress, Report, Severity, shown
from neve.bucket.verify.run import Options
from neve.errors import DamagedError, NeveError, NotFoundError, UnsupportedError
from neve.log.downloads import fetch_checked
from neve.log.segment import kafscale, kfs
from neve.log.segment.bundle import decode_foreign
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX
from neve.log.segment.kafscale import ForeignSegment
from neve.store.port import Store

BUILD_INDEX = "`neve maintain build-index --layout kafscale` writes it from its segment"
RESTORE = "bring it back from a copy, or import without it: `neve import kafscale --skip-damaged`"


async def verify_kafscale(
    store: Store,
    options: Options | None = None,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Verify a whole KafScale bucket. Raises NoClusterError if it has no segment."""
    chosen = options or Options()
    check = _Check(store, Report(progress=progress), chosen)
    found = await list_kafscale(store)
    check.report.begin("segments")
    for name, segments in found.partitions.items():
        await check.partition(name, segments)
    for key in found.half_pairs:
        what = "it has no segment: half a pair, which no reader uses"
        do = "harmless; inspect it, then remove it by hand"
        check.add(Severity.ORPHAN, key, what, do)
    return check.report


class _Check:
    """One run over one bucket."""

    def __init__(self, store: Store, report: Report, options: Options) -> None:
        self._store = store
        self._bounds = Bounds(options.objects_at_once, options.bytes_at_once)
        self.report = report

    def add(self, severity: Severity, key: str, what: str, do: str) -> None:
        self.report.add(Finding(severity=severity, key=key, what=what, do=do))

    async def partition(self, name: PartitionName, segments: Sequence[ForeignSegment]) -> None:
        """Check a partition's segments and index files, and that its offsets are contiguous."""
        ends: dict[str, int | None] = {}

        async def check(segment: ForeignSegment) -> None:
            async with self._bounds.holding(segment.segment_bytes):
                ends[segment.key] = await self._segment(segment)

        await self._bounds.each(segments, check)
        self.report.counts["partitions"] += 1
        expected: int | None = segments[0].name.base_offset
        for segment in segments:
            base = segment.name.base_offset
            if expected is not None and base > expected:
                what = f"no segment before it holds offsets {shown([(expected, base)])} of {name}"
                do = "bring their segment back; readers pass over the offsets and count them"
                self.add(Severity.GAP, segment.key, what, do)
            elif expected is not None and base < expected:
                what = f"the segment before it reaches to offset {expected - 1} of {name}"
                do = "readers take this one from its base on; such a partition is not imported"
                self.add(Severity.DAMAGE, segment.key, what, do)
            # None after a damaged segment: the next expected offset is unknown.
            expected = ends[segment.key]

    async def _segment(self, segment: ForeignSegment) -> int | None:
        """Check a segment and its index files. Returns its end offset, or None if it is damaged."""
        try:
            found = await fetch_checked(
                self._store,
                segment.key,
                kfs.SEGMENT_BYTES_MAX,
                lambda data: examine(data, segment),
            )
        except (DamagedError, NotFoundError, UnsupportedError) as error:
            self.add(Severity.DAMAGE, segment.key, _reason(error), RESTORE)
            return None
        self.report.read("segments", segment.segment_bytes)
        for help_key, check in (
            (segment.index_key, self._index_problem),
            (segment.times_key, self._times_fault),
        ):
            problem = await check(help_key, found) if help_key is not None else ""
            if help_key is not None and problem:
                self.add(Severity.DAMAGE, help_key, problem, f"{BUILD_INDEX}; no record is lost")
        if segment.index_key is None:
            what = "it has no index: ranges of it cost a whole read"
            self.add(Severity.NOTE, segment.key, what, BUILD_INDEX.replace("it", "one", 1))
        return found.segment.facts.last_offset + 1

    async def _index_problem(self, key: str, found: Examined) -> str:
        size = found.segment.facts.segment_bytes

        def check(data: memoryview) -> None:
            bundle = decode_foreign(data, key, size)
            if not found.has(bundle.offsets, bundle.positions):
                raise DamagedError(key, "it points at other places than batches of its segment")

        return await self._fault(key, FOREIGN_INDEX_BYTES_MAX, check)

    async def _times_fault(self, key: str, found: Examined) -> str:
        def check(data: memoryview) -> None:
            times = kafscale.decode_times(data, key)
            if times != found.times:
                raise DamagedError(key, f"it says {times}, its segment holds {found.times}")

        return await self._fault(key, kafscale.TIMES_BYTES, check)

    async def _fault(self, key: str, bytes_max: int, check: Callable[[memoryview], None]) -> str:
        try:
            await fetch_checked(self._store, key, bytes_max, check)
        except (DamagedError, NotFoundError, UnsupportedError) as error:
            return _reason(error)
        self.report.read("indexes", 0)
        return ""


def _reason(error: NeveError) -> str:
    return str(getattr(error, "reason", error))
