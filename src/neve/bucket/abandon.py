"""Gives up the streams in a WAL store that is gone for good.

For each partition, what was not in segments yet and lay in that store is lost. The loss is recorded
as skips in the partition's manifest, as `neve storage skip` does, so that readers pass over it and
verify and pipelines report it. Where the end of the loss is not known, the skip covers more offsets
than can have been assigned: the log leaps over them, and no offset gets a second record. Then one
record of the cluster log gives the streams up: processes that write there are ended, and partitions
get other leaders, which continue behind what was skipped.

Skips come first: a run that was interrupted is repeated. They name the store, so that it finds its
own, lists the same losses again and leaps only once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from neve import runtime
from neve.bucket.verify.context import manifest_of
from neve.bucket.verify.findings import PartitionRef
from neve.cluster.log import ClusterLog
from neve.cluster.recovery import INFLIGHT_MAX
from neve.cluster.state import ClusterState, StreamPart
from neve.cluster.stream_ends import NO_NOTES, StreamNotes, read_stream_notes
from neve.errors import InvalidError, NeveError
from neve.log.keys import stream_ends_key
from neve.log.manifest.records import Change, Skip
from neve.log.manifest.skips import (
    OffsetRange,
    clipped,
    clipped_skips,
    leaps,
    past_skips,
    without,
)
from neve.log.manifest.state import ManifestState
from neve.log.tail import committed_slices, promised_end
from neve.log.wal.reader import PartitionId, StreamTail, WalReader
from neve.log.wal.seal import Sealer
from neve.log.wal.store_identity import WalStoreRef, read_identity
from neve.log.wal.stores import places_of
from neve.store.port import Store

# How many offsets a partition leaps over where the end of its loss is not known. More than any
# partition can hold untiered.
OFFSETS_LEAPT = 2**32
PARTITIONS_AT_ONCE = 16
# A store that has not answered for this long counts as gone here.
ANSWER_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class PartitionLoss:
    """What one partition loses: ranges of offsets, and all from `open_from` on if that is set.

    `open_from` is set where the end of what was lost is not known. The log continues at
    `continues_at` then.
    """

    topic: str
    partition: int
    ranges: tuple[OffsetRange, ...] = ()
    open_from: int | None = None

    @property
    def offsets(self) -> int:
        """The number of offsets that are known to be lost."""
        return sum(end - first for first, end in self.ranges)

    @property
    def continues_at(self) -> int | None:
        """The first offset behind the leap; None if there is none."""
        return None if self.open_from is None else self.open_from + OFFSETS_LEAPT


@dataclass(frozen=True)
class Abandonment:
    """The streams in one WAL store, and what their partitions lose without it."""

    store: WalStoreRef
    streams: tuple[int, ...]
    live_nodes: tuple[int, ...]
    losses: tuple[PartitionLoss, ...]
    done: bool = False


class StreamsLeft(NamedTuple):
    """What is known of the streams of partitions: which are gone, and how far they went.

    `tails` has all that can be read, even of those that are gone; `notes` what the writers of all
    have noted in the bucket.
    """

    gone: set[int]
    tails: Mapping[int, StreamTail]
    notes: Mapping[int, StreamNotes]


async def plan_abandonment(store: Store, name: str) -> Abandonment:
    """Return what would be lost with a WAL store. Writes nothing."""
    cluster = ClusterLog(store)
    return await _planned(store, await cluster.must_exist(), name)


async def abandon_wal(store: Store, name: str, *, accept_loss: bool) -> Abandonment:
    """Give up the streams in a WAL store, and return what was lost."""
    if not accept_loss:
        raise InvalidError(
            f"all records in WAL store {name!r} that are not in segments yet would be lost for "
            "ever: --dry-run lists them; add --accept-loss if that is meant"
        )
    cluster = ClusterLog(store)
    state = await cluster.must_exist()
    if await _answers(store, state, name):
        # A writer that does not know of this must not go on, and the ends must not move any more.
        for incarnation in _streams_in(state, name):
            with contextlib.suppress(NeveError):
                await Sealer(store, incarnation, window=INFLIGHT_MAX).seal()
    planned = await _planned(store, state, name)
    for loss in planned.losses:
        await _record(store, state, loss, planned.store)
    await cluster.abandon_wal(planned.store.store_id)
    for incarnation in planned.streams:
        await store.delete(stream_ends_key(incarnation))
    return replace(planned, done=True)


def _streams_in(state: ClusterState, name: str) -> list[int]:
    return sorted(key for key, ref in state.wal_stores().items() if ref.name == name)


async def _answers(store: Store, state: ClusterState, name: str) -> bool:
    """Whether a WAL store answers after all, and is the one that the cluster log means."""
    places = places_of(store)
    named = None if places is None else places.named.get(name)
    if named is None:
        return False
    try:
        async with runtime.deadline(ANSWER_SECONDS_MAX):
            identity = await read_identity(named.store)
    except (NeveError, TimeoutError):
        return False
    ids = {ref.store_id for ref in state.wal_stores().values() if ref.name == name}
    return identity is not None and identity.store_id in ids


async def _planned(store: Store, state: ClusterState, name: str) -> Abandonment:
    refs = state.wal_stores()
    streams = _streams_in(state, name)
    if not streams:
        known = sorted({ref.name for ref in refs.values()})
        raise InvalidError(
            f"no stream of this cluster lies in a WAL store {name!r}; streams lie in: "
            + (", ".join(known) or "the bucket only")
        )
    store_id = refs[streams[-1]].store_id
    gone, answers = set(streams), await _answers(store, state, name)
    affected = [
        (PartitionRef(topic.name, topic.topic_id, number), partition.streams)
        for topic in sorted(state.topics.values(), key=lambda topic: topic.name)
        for number, partition in enumerate(topic.partitions)
        if any(part.incarnation in gone for part in partition.streams)
    ]
    wanted = {part.incarnation for _, parts in affected for part in parts}
    left = await _read(store, wanted, gone, answers=answers)
    losses: list[PartitionLoss] = []
    for first in range(0, len(affected), PARTITIONS_AT_ONCE):
        rows = affected[first : first + PARTITIONS_AT_ONCE]
        losses += await runtime.gather(*(_loss(store, *row, left, store_id) for row in rows))
    live = sorted(
        row.node_id for row in state.brokers.values() if row.live and row.incarnation in gone
    )
    return Abandonment(refs[streams[-1]], tuple(streams), tuple(live), tuple(losses))


async def _read(
    store: Store, incarnations: set[int], gone: set[int], *, answers: bool
) -> StreamsLeft:
    """Read these streams. Those that are `gone` are left out if they cannot be read."""
    tails: dict[int, StreamTail] = {}
    for incarnation in sorted(incarnations if answers else incarnations - gone):
        try:
            tails[incarnation] = await WalReader(store, incarnation).tail()
        except NeveError:
            if incarnation not in gone:
                raise
    wanted = sorted(incarnations | gone)
    notes = {incarnation: await read_stream_notes(store, incarnation) for incarnation in wanted}
    return StreamsLeft(gone, tails, notes)


async def _loss(
    store: Store,
    place: PartitionRef,
    parts: Sequence[StreamPart],
    known: StreamsLeft,
    store_id: str,
) -> PartitionLoss:
    manifest = await manifest_of(store, place).refresh()  # after the streams, as every reader does
    return loss_of_partition(place, parts, known, manifest, store_id)


def loss_of_partition(
    place: PartitionRef,
    parts: Sequence[StreamPart],
    known: StreamsLeft,
    manifest: ManifestState,
    store_id: str,
) -> PartitionLoss:
    """Return what a partition loses without the streams that are gone. Pure.

    What an interrupted run has recorded for the store with this id is part of it.
    """
    tails, partition = known.tails, (bytes.fromhex(place.topic_id), place.partition)
    readable = [part for part in parts if part.incarnation in tails]
    slices = committed_slices(*partition, readable, tails)
    left = [row for row in slices if row.incarnation not in known.gone]
    others = [skip for skip in manifest.skips if skip.wal_store != store_id]
    ours = [skip for skip in leaps(manifest.skips) if skip.wal_store == store_id]
    first = max(manifest.next, manifest.start)
    released = [part.end_offset for part in parts if part.end_offset is not None]
    noted = _noted(partition, parts, known)
    end = max(
        [
            first,
            promised_end(*partition, readable, tails),
            *released,
            *(note.next for note in noted),
            *(row.entry.last_offset + 1 for row in slices),
        ]
    )
    # Offsets that were given up before were assigned, or leapt over.
    end = past_skips(others, end)
    is_open = _is_open(partition, parts, known, [row.entry.leader_epoch for row in slices])
    open_from = end if is_open else None
    if ours:
        open_from = end = ours[0].first
    held = [(row.entry.base_offset, row.entry.last_offset + 1) for row in left]
    skipped = clipped_skips(others, first, end)
    lost = [
        row for hole in without(first, end, held) for row in without(*hole, clipped(skipped, *hole))
    ]
    return PartitionLoss(place.topic, place.partition, tuple(lost), open_from)


class _Note(NamedTuple):
    """An offset that a partition is known to have reached in an epoch, or its end there."""

    epoch: int
    next: int
    is_end: bool


def _noted(partition: PartitionId, parts: Sequence[StreamPart], known: StreamsLeft) -> list[_Note]:
    """Return what the leaders of a partition have noted in the bucket."""
    found: list[_Note] = []
    for part in parts:
        notes = known.notes.get(part.incarnation, NO_NOTES)
        for rows, is_end in ((notes.begins, False), (notes.ends, part.incarnation in known.gone)):
            row = rows.get(partition)
            if row is not None and row.epoch == part.epoch:
                found.append(_Note(row.epoch, row.next, is_end))
    return found


def _is_open(
    partition: PartitionId, parts: Sequence[StreamPart], known: StreamsLeft, written: list[int]
) -> bool:
    """Return whether the end of what a partition loses is not known.

    `written` are the epochs of the slices that can be read.
    """
    noted = _noted(partition, parts, known)
    ended = {note.epoch for note in noted if note.is_end}
    unread = [
        part.epoch
        for part in parts
        if part.incarnation not in known.tails
        and part.end_offset is None
        and part.epoch not in ended
    ]
    # Where a later leader wrote, or noted an offset, it began at the end of what was before it.
    shown = [*written, *(note.epoch for note in noted)]
    for part in parts:
        tail = known.tails.get(part.incarnation)
        checkpointed = None if tail is None else tail.ends.get(partition)
        shown += [checkpointed.epoch] if checkpointed is not None else []
    return bool(unread) and max(unread) >= max(shown, default=-1)


async def _record(store: Store, state: ClusterState, loss: PartitionLoss, ref: WalStoreRef) -> None:
    """Record a loss in the manifest, unless it is there already."""
    topic = state.topic(loss.topic)
    assert topic is not None  # the loss was derived from this state
    place = PartitionRef(loss.topic, topic.topic_id, loss.partition)
    at_ms = runtime.now_ms()

    def make(now: ManifestState) -> Sequence[Change]:
        return skips_of(loss, now, ref, at_ms)

    if loss.ranges or loss.open_from is not None:
        await manifest_of(store, place).change(make)


def skips_of(loss: PartitionLoss, now: ManifestState, ref: WalStoreRef, at_ms: int) -> list[Skip]:
    """Return the skips that record a loss and are not in the manifest yet. Pure."""
    reason = f"WAL store {ref.name!r} ({ref.url}) was abandoned"
    first_left = max(now.next, now.start)  # what was tiered meanwhile is not lost
    fresh: list[Skip] = []
    for first, end in loss.ranges:
        known = clipped_skips(now.skips, max(first, first_left), end)
        fresh += [
            Skip(low, high - 1, at_ms, reason, wal_store=ref.store_id)
            for low, high in without(max(first, first_left), end, known)
        ]
    recorded = any(skip.wal_store == ref.store_id for skip in leaps(now.skips))
    if loss.open_from is not None and not recorded:
        first = max(loss.open_from, first_left)
        last = first + OFFSETS_LEAPT - 1
        fresh.append(Skip(first, last, at_ms, reason, end_known=False, wal_store=ref.store_id))
    return fresh
