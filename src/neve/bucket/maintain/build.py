"""Builds a merged segment in memory: the unchanged batches of its inputs, and one bundle.

The bundle takes producers, epochs and state table from the last input's bundle, and the aborted
transactions from all of them. If an input has no complete bundle (it is lost, or KafScale wrote the
segment), what is missing comes from replaying the batches onto the history before the first input,
as when a lost bundle is rebuilt.

Memory holds the new segment, and the inputs that are read concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from neve import runtime
from neve.errors import DamagedError, NotFoundError
from neve.log.downloads import fetch_checked, fetch_range_checked
from neve.log.keys import new_segment_key
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import NO_CRC, Segment
from neve.log.remote import load_bundle
from neve.log.restore import history_before, is_internal_partition
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle, build_bundle
from neve.log.segment.history import History
from neve.log.segment.sections import StateRow
from neve.store.port import Store

Room: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

READS_AT_ONCE = 4


class Merged(NamedTuple):
    """A merged segment and its bundle to upload, and the segment's row for the manifest."""

    segment: Segment
    data: memoryview
    bundle: bytes


async def build_merged(
    store: Store,
    manifest: Manifest,
    prefix: str,
    listed: Sequence[Segment],
    inputs: Sequence[Segment],
    *,
    interval: int,
) -> Merged:
    """Build one segment from `inputs`, which are neighbours in `listed`.

    Raises DamagedError or NotFoundError if an input cannot be read.
    """
    known = [await _complete_bundle(store, manifest, segment) for segment in inputs]
    sound = [bundle for bundle in known if bundle is not None]
    walked: History | None = None
    if len(sound) < len(inputs):
        walked = await history_at(store, manifest, listed, inputs[0])
    body = await _read_bodies(store, inputs)
    built = await runtime.offload(_assemble, body, inputs, walked)
    transactions = [row for bundle in sound for row in bundle.transactions]
    if walked is not None:
        transactions = list(walked.aborted)
    last = known[-1]
    at_end = History(prefix) if walked is None else walked
    bundle = build_bundle(
        built,
        interval,
        producers=(last.producers or ()) if last is not None else at_end.producers.entries(),
        epochs=(last.epochs or ()) if last is not None else at_end.epochs.starts,
        transactions=transactions,
        state=_state(manifest, last, at_end),
    )
    return Merged(_described(prefix, inputs, built.facts, len(bundle)), body.data, bundle)


def _state(manifest: Manifest, last: Bundle | None, walked: History) -> Sequence[StateRow] | None:
    if not is_internal_partition(manifest):
        return None
    if last is not None:
        return last.state
    assert walked.state is not None
    return walked.state.rows()


def is_complete(bundle: Bundle, *, internal: bool) -> bool:
    """Return whether a bundle has all sections that Neve writes."""
    has_history = bundle.producers is not None and bundle.epochs is not None
    return has_history and bundle.checksummed and (bundle.state is not None or not internal)


async def _complete_bundle(store: Store, manifest: Manifest, segment: Segment) -> Bundle | None:
    """Return an input's bundle with every section checked, or None if one is missing."""
    try:
        bundle = await load_bundle(store, segment)
        bundle.check_all()
    except NotFoundError as error:
        if error.key == segment.index_key or segment.index_key is None:
            return None
        raise
    except DamagedError:
        return None
    return bundle if is_complete(bundle, internal=is_internal_partition(manifest)) else None


async def history_at(
    store: Store, manifest: Manifest, listed: Sequence[Segment], first: Segment
) -> History:
    """Return the history at the start of a listed segment, even if bundles before it are lost."""
    at = next(index for index, row in enumerate(listed) if row.key == first.key)
    found = await history_before(store, manifest, listed, at, manifest.keys.prefix)
    history = found.history.copy(manifest.keys.prefix)
    for segment in listed[found.segments : at]:
        await fetch_checked(
            store,
            segment.key,
            segment.bytes_max,
            lambda data, key=segment.key: kfs.check(data, key, observe=history.observe),  # type: ignore[misc]
        )
    return history.copy(manifest.keys.prefix)


async def _read_bodies(store: Store, inputs: Sequence[Segment]) -> Room:
    """Return a buffer for the new segment that has the checked batches of all inputs in place."""
    edges = kfs.HEADER_BYTES + kfs.FOOTER_BYTES
    sizes = [segment.bytes - edges for segment in inputs]
    whole = np.empty(sum(sizes) + edges, np.uint8)
    starts = (np.cumsum([kfs.HEADER_BYTES, *sizes])[:-1]).tolist()

    async def read(segment: Segment, start: int) -> None:
        body = await fetch_range_checked(
            store, segment.key, 0, segment.bytes, lambda data: _checked_body(segment, data)
        )
        whole[start : start + len(body)] = np.frombuffer(body, np.uint8)

    for at in range(0, len(inputs), READS_AT_ONCE):
        some = zip(inputs[at : at + READS_AT_ONCE], starts[at : at + READS_AT_ONCE], strict=True)
        await runtime.gather(*(read(segment, start) for segment, start in some))
    return whole


def _checked_body(segment: Segment, data: memoryview) -> memoryview:
    facts = kfs.check(data, segment.key).facts
    listed = (segment.base, segment.last, segment.bytes)
    found = (facts.base_offset, facts.last_offset, facts.segment_bytes)
    if listed != found or segment.crc not in (NO_CRC, facts.body_crc):
        raise DamagedError(
            segment.key,
            f"it holds offsets {found[0]} to {found[1]} in {found[2]} bytes with checksum "
            f"{facts.body_crc:08x}, and is listed as {listed[0]} to {listed[1]} in {listed[2]}",
        )
    return data[kfs.HEADER_BYTES : len(data) - kfs.FOOTER_BYTES]


def _assemble(whole: Room, inputs: Sequence[Segment], walked: History | None) -> kfs.Segment:
    """Put header and footer around the batches, in place, and describe the result."""
    body = whole.data[kfs.HEADER_BYTES : len(whole) - kfs.FOOTER_BYTES]
    # The newest input's time, because records without a timestamp expire by it.
    created_ms = max(segment.created_ms for segment in inputs)
    observe = None if walked is None else walked.observe
    built = kfs.build(inputs[0].base, created_ms, [body], observe=observe)
    header, _, footer = built.parts
    whole[: kfs.HEADER_BYTES] = np.frombuffer(header, np.uint8)
    whole[len(whole) - kfs.FOOTER_BYTES :] = np.frombuffer(footer, np.uint8)
    whole.flags.writeable = False
    return built


def _described(
    prefix: str, inputs: Sequence[Segment], facts: kfs.SegmentFacts, bundle_bytes: int
) -> Segment:
    name = (prefix, facts.base_offset, 0)  # 0, because a job has no incarnation
    return Segment(
        key=new_segment_key(*name, "kfs"),
        index_key=new_segment_key(*name, "index"),
        base=facts.base_offset,
        last=facts.last_offset,
        bytes=facts.segment_bytes,
        index_bytes=bundle_bytes,
        records=facts.message_count,
        min_timestamp=facts.min_base_timestamp,
        max_timestamp=facts.max_timestamp,
        created_ms=facts.created_ms,
        epoch=inputs[-1].epoch,
        crc=facts.body_crc,
    )
