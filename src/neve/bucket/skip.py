"""Gives offsets up for lost, so that readers can continue past damage that cannot be repaired.

A skip is recorded in the partition's manifest with its reason and time, and stays there. Readers
pass over the offsets and count them. Nothing is deleted: a damaged segment keeps its key, in case
a copy of it is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from neve import runtime
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.context import VerifyContext, manifest_of
from neve.bucket.verify.findings import PartitionRef, Report
from neve.bucket.verify.stream import Streams
from neve.bucket.verify.tail import tail_gaps
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.state import PartitionState
from neve.errors import InvalidError
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Change, Skip
from neve.log.manifest.skips import clipped_skips
from neve.log.manifest.state import ManifestState
from neve.store.port import Store

REASON_DEFAULT = "given up with `neve storage skip`"
REASON_CHARS_MAX = 1_000


class Skipped(NamedTuple):
    """What was recorded: offsets from `first` up to, not including, `end`.

    `offsets` counts only those that were not given up before.
    """

    topic: str
    partition: int
    first: int
    end: int
    offsets: int
    number: int | None


async def skip(
    store: Store,
    topic: str,
    partition: int,
    first: int,
    end: int,
    *,
    accept_loss: bool,
    reason: str = REASON_DEFAULT,
) -> Skipped:
    """Give the offsets from `first` up to, not including, `end` up for lost."""
    if not accept_loss:
        raise InvalidError(
            f"offsets {first} to {end - 1} of {topic}-{partition} would be lost to every reader, "
            "for ever: add --accept-loss if that is meant"
        )
    if len(reason) > REASON_CHARS_MAX:
        raise InvalidError(f"a reason has at most {REASON_CHARS_MAX} characters")
    place, state, cluster = await _found(store, topic, partition)
    manifest = manifest_of(store, place)
    log_end = await _end(store, cluster, place, state, manifest)
    at_ms = runtime.now_ms()
    fresh = 0

    def make(now: ManifestState) -> Sequence[Change]:
        nonlocal fresh
        _check_range(place, first, end, now.start, max(log_end, now.next))
        known = clipped_skips(now.skips, first, end)
        fresh = end - first - sum(stop - start for start, stop in known)
        return [Skip(first, end - 1, at_ms, reason)] if fresh else []

    outcome = await manifest.change(make)
    return Skipped(topic, partition, first, end, fresh, outcome.number)


async def _found(
    store: Store, topic: str, partition: int
) -> tuple[PartitionRef, PartitionState, ClusterLog]:
    cluster = ClusterLog(store)
    found = (await cluster.must_exist()).topic(topic)
    if found is None:
        raise NoTopicError(f"there is no topic {topic!r}")
    if not 0 <= partition < len(found.partitions):
        raise InvalidError(
            f"topic {topic!r} has the partitions 0 to {len(found.partitions) - 1}, not {partition}"
        )
    return PartitionRef(topic, found.topic_id, partition), found.partitions[partition], cluster


async def _end(
    store: Store,
    cluster: ClusterLog,
    place: PartitionRef,
    state: PartitionState,
    manifest: Manifest,
) -> int:
    """Return the end of the log as far as the readable objects show it."""
    streams = Streams(VerifyContext(store, cluster, Report(), Bounds()))
    results = await streams.results((part.incarnation for part in state.streams), fresh=True)
    walked = {result.tail.incarnation: result.tail for result in results}
    _, end = tail_gaps(place, state.streams, walked, await manifest.refresh())
    return end


def _check_range(place: PartitionRef, first: int, end: int, start: int, log_end: int) -> None:
    if not start <= first < end <= log_end:
        raise InvalidError(
            f"{place}: offsets {first} to {end - 1} are not within the log, which has "
            f"{start} to {log_end - 1}"
        )
