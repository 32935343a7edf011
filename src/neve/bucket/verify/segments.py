"""Checks every byte of a listed segment and its bundle, against each other and the manifest.

If a segment is damaged and its bundle is not, the bundle shows which stretches are damaged, so that
only their offsets are reported as lost.
"""

from __future__ import annotations

from typing import NamedTuple

from neve import runtime
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.content import contradictions
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.downloads import ATTEMPTS_DEFAULT
from neve.log.manifest.records import NO_CRC, Segment
from neve.log.manifest.skips import OffsetRange
from neve.log.reading.segment_indexes import check_fits
from neve.log.remote import read_bundle
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle
from neve.store.port import Store


class SegmentResult(NamedTuple):
    """What is wrong with a segment and its bundle; the texts are empty if nothing is.

    No reader can read the offsets in `lost`.
    """

    segment_fault: str = ""
    index_problem: str = ""
    lost: tuple[OffsetRange, ...] = ()

    @property
    def is_well(self) -> bool:
        return not self.segment_fault and not self.index_problem


async def check_segment(store: Store, bounds: Bounds, segment: Segment) -> SegmentResult:
    """Read a segment and its bundle completely, and run every check on both."""
    async with bounds.holding(segment.bytes + segment.index_bytes):
        bundle, index_problem = await _checked_bundle(store, segment)
        for attempt in range(1, ATTEMPTS_DEFAULT + 1):
            try:
                data = await store.get(segment.key, segment.bytes_max)
            except NotFoundError:
                return SegmentResult("it is listed but missing", index_problem, _all(segment))
            result = await runtime.offload(_examine, segment, data, bundle, index_problem)
            if not result.segment_fault or attempt == ATTEMPTS_DEFAULT:
                break  # otherwise retry: the read may have been torn
        return result


async def _checked_bundle(store: Store, segment: Segment) -> tuple[Bundle | None, str]:
    """Return the bundle with every section checked, or None and why readers do not use it.

    None without a reason means that the segment has no bundle.
    """
    key = segment.index_key
    if key is None:
        return None, ""

    def check(bundle: Bundle) -> Bundle:
        if segment.owned and bundle.encoded_bytes != segment.index_bytes:
            raise DamagedError(
                key, f"it has {bundle.encoded_bytes} bytes, its list says {segment.index_bytes}"
            )
        bundle.check_all()
        check_fits(bundle, segment)
        return bundle

    try:
        return await read_bundle(store, segment, check), ""
    except NotFoundError:
        return None, "it is listed but missing"
    except DamagedError as error:
        return None, error.reason
    except UnsupportedError as error:
        return None, str(error)


def _examine(
    segment: Segment, data: memoryview, bundle: Bundle | None, index_problem: str
) -> SegmentResult:
    try:
        facts = kfs.check(data, segment.key).facts
    except (DamagedError, UnsupportedError) as error:
        return SegmentResult(
            getattr(error, "reason", str(error)), index_problem, _lost(segment, data, bundle)
        )
    problem = _against_list(segment, facts)
    if problem:
        return SegmentResult(problem, index_problem)
    if bundle is not None and not index_problem:
        index_problem = _against_bundle(segment, data, bundle)
    body = data[kfs.HEADER_BYTES : len(data) - kfs.FOOTER_BYTES]
    found = contradictions(body, segment.key)
    problem = found[0].reason if found else ""
    return SegmentResult(problem, index_problem, tuple((row.first, row.end) for row in found))


def _against_list(segment: Segment, facts: kfs.SegmentFacts) -> str:
    listed = [segment.base, segment.last, segment.bytes]
    found = [facts.base_offset, facts.last_offset, facts.segment_bytes]
    if segment.crc != NO_CRC:
        listed += [segment.records, segment.crc]
        found += [facts.message_count, facts.body_crc]
    if listed == found:
        return ""
    names = ("first offset", "last offset", "bytes", "records", "checksum")
    differences = [
        f"{name} {is_}, listed as {says}"
        for name, is_, says in zip(names, found, listed, strict=False)
        if is_ != says
    ]
    return "it is whole, but not what its list says: " + "; ".join(differences)


def _against_bundle(segment: Segment, data: memoryview, bundle: Bundle) -> str:
    """Return why a bundle contradicts its healthy segment; an empty string if it does not."""
    footer = data[len(data) - kfs.FOOTER_BYTES :]
    stretches = bundle.stretches(segment.base, segment.last + 1)
    try:
        bundle.verify_header(data[: kfs.HEADER_BYTES], segment.key)
        bundle.verify_range(stretches, data[stretches[0].start : stretches[-1].end], segment.key)
        bundle.verify_footer(footer, segment.key)
    except DamagedError as error:
        return f"it contradicts its segment, which is healthy: {error.reason}"
    return ""


def _lost(segment: Segment, data: memoryview, bundle: Bundle | None) -> tuple[OffsetRange, ...]:
    """Return the offsets of a damaged segment that no reader can read."""
    if bundle is None or not bundle.checksummed:
        return _all(segment)
    lost: list[OffsetRange] = []
    stretches = bundle.stretches(segment.base, segment.last + 1)
    for at, stretch in enumerate(stretches):
        try:
            bundle.verify_stretch(stretch, data[stretch.start : stretch.end], segment.key)
        except DamagedError:
            last = at + 1 == len(stretches)
            end = segment.last + 1 if last else stretches[at + 1].base_offset
            if lost and lost[-1][1] == stretch.base_offset:
                lost[-1] = (lost[-1][0], end)
            else:
                lost.append((stretch.base_offset, end))
    return tuple(lost)


def _all(segment: Segment) -> tuple[OffsetRange, ...]:
    return ((segment.base, segment.last + 1),)
