"""How far a stream goes that cannot be read now: noted in the bucket by its writer.

While the WAL store of a live process does not answer, the process alone knows which offsets it has
assigned. It notes them in the bucket. A leader also notes where it began, as long as earlier
records of the partition lie in a WAL store. If a store turns out to be gone for good, `neve cluster
abandon-wal` knows from the notes where the loss ends, and no offset is assigned twice. Like a
heartbeat, the object is overwritten; nothing else depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.liveness.heartbeat import is_over
from neve.cluster.log import ClusterLog
from neve.cluster.maintenance_queues import MaintenanceQueues
from neve.errors import DamagedError, NotFoundError
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    Stored,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import STREAM_ENDS_PREFIX, stream_ends_key, stream_ends_of
from neve.log.wal.checkpoint import PartitionEnd
from neve.log.wal.reader import PartitionId
from neve.store.deletion import delete_all
from neve.store.port import Store


class StreamEnds(Stored, frozen=True, omit_defaults=True):
    """The payload: the next offset of each partition that the process leads.

    `begins` has where it began to lead those whose earlier records lie in WAL stores.
    """

    partitions: tuple[PartitionEnd, ...] = ()
    begins: tuple[PartitionEnd, ...] = ()


class StreamNotes(NamedTuple):
    """What a process has noted: where it began to lead partitions, and where they end."""

    begins: Mapping[PartitionId, PartitionEnd]
    ends: Mapping[PartitionId, PartitionEnd]


NO_NOTES = StreamNotes({}, {})


class OwnStreamEnds:
    """The note of one process about its own stream.

    The ends are noted while the stream cannot be read. Where it began to lead a partition is noted
    as long as earlier records lie in a WAL store: if that store is lost before the process writes a
    record, nothing else shows in the bucket where those records ended.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        cluster: ClusterLog,
        led: LedPartitions,
        queues: MaintenanceQueues,
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._cluster = cluster
        self._led = led
        self._queues = queues
        self._has_ends = False
        self._written = StreamEnds()
        self._writing = asyncio.Lock()  # an older note must not replace a newer one

    def is_due(self) -> bool:
        """Whether `update` would change where partitions began, known without a request."""
        return self._begins() != self._written.begins

    async def write(self) -> None:
        """Note how far the partitions go, unless the note says so already."""
        self._has_ends = True
        await self.update()

    async def clear(self) -> None:
        """Remove the ends, because the stream can be read again."""
        self._has_ends = False
        await self.update()

    async def update(self) -> None:
        """Write what is to be noted now, unless the note says so already."""
        async with self._writing:
            ends = StreamEnds(self._ends() if self._has_ends else (), self._begins())
            if ends == self._written:
                return
            if ends == StreamEnds():
                await self._store.delete(stream_ends_key(self._incarnation))
            else:
                author = runtime.token(AUTHOR_BYTES)
                data = seal_envelope(
                    Kind.STREAM_ENDS, STREAM_ENDS_PREFIX, self._incarnation, author, ends
                )
                await self._store.put(stream_ends_key(self._incarnation), data)
            self._written = ends

    def _ends(self) -> tuple[PartitionEnd, ...]:
        return tuple(
            PartitionEnd(topic_id.hex(), number, leader.log.epoch, leader.log.next_offset)
            for (topic_id, number), leader in self._led.partitions.items()
        )

    def _begins(self) -> tuple[PartitionEnd, ...]:
        state = self._cluster.state
        apart = state.wal_stores()
        if not apart:
            return ()
        found: list[PartitionEnd] = []
        for leader in self._queues.with_earlier_streams:
            log = leader.log
            topic = state.topic_by_id(log.topic_id)
            if topic is None:
                continue
            parts = topic.partitions[log.partition].streams
            if any(part.epoch < log.epoch and part.incarnation in apart for part in parts):
                start = log.epochs[-1].start_offset
                found.append(PartitionEnd(log.topic_id.hex(), log.partition, log.epoch, start))
        return tuple(found)


async def read_stream_notes(store: Store, incarnation: int) -> StreamNotes:
    """Return what a process has noted; nothing if there is no readable note."""
    key = stream_ends_key(incarnation)

    def decode(data: memoryview) -> StreamEnds:
        envelope = open_envelope(data, Kind.STREAM_ENDS, STREAM_ENDS_PREFIX, incarnation, key)
        payload: StreamEnds = decode_payload(envelope, StreamEnds, key)
        return payload

    try:
        noted = await fetch_checked(store, key, ENVELOPE_BYTES_MAX, decode)
    except (NotFoundError, DamagedError):
        return NO_NOTES
    return StreamNotes(_by_partition(noted.begins), _by_partition(noted.partitions))


def _by_partition(rows: Sequence[PartitionEnd]) -> Mapping[PartitionId, PartitionEnd]:
    return {(bytes.fromhex(row.topic_id), row.partition): row for row in rows}


async def delete_stream_ends(store: Store, cluster: ClusterLog) -> int:
    """Delete the notes of processes whose streams no partition needs. Returns how many."""
    listed = [row.key for row in await store.list(STREAM_ENDS_PREFIX)]
    if not listed:
        return 0
    # The cluster log is read after the listing, as for heartbeats.
    state = await cluster.refresh()
    needed = {key for key, row in state.brokers.items() if row.live} | set(state.streams())
    position = cluster.view.position
    doomed = [key for key in listed if is_over(stream_ends_of(key), needed, position)]
    await delete_all(store, doomed)
    return len(doomed)
