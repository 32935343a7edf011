"""How far a stream goes that cannot be read now: noted in the bucket by its writer.

While the WAL store of a live process does not answer, the process alone knows which offsets it has
assigned. It notes them in the bucket. If the store turns out to be gone for good, `neve cluster
abandon-wal` knows from the note where the loss ends, and no offset is assigned twice. Like a
heartbeat, the object is overwritten; nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.liveness.heartbeat import is_over
from neve.cluster.log import ClusterLog
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


class StreamEnds(Stored, frozen=True):
    """The payload: the next offset of each partition that the process leads."""

    partitions: tuple[PartitionEnd, ...] = ()


class OwnStreamEnds:
    """The note of one process about its own stream."""

    def __init__(self, store: Store, incarnation: int, led: LedPartitions) -> None:
        self._store = store
        self._incarnation = incarnation
        self._led = led
        self._written: StreamEnds | None = None

    async def write(self) -> None:
        """Note how far the partitions go, unless the note says so already."""
        ends = StreamEnds(
            tuple(
                PartitionEnd(topic_id.hex(), number, leader.log.epoch, leader.log.next_offset)
                for (topic_id, number), leader in self._led.partitions.items()
            )
        )
        if ends != self._written:
            author = runtime.token(AUTHOR_BYTES)
            data = seal_envelope(
                Kind.STREAM_ENDS, STREAM_ENDS_PREFIX, self._incarnation, author, ends
            )
            await self._store.put(stream_ends_key(self._incarnation), data)
            self._written = ends

    async def clear(self) -> None:
        """Remove the note, because the stream can be read again."""
        if self._written is not None:
            await self._store.delete(stream_ends_key(self._incarnation))
            self._written = None


async def read_stream_ends(store: Store, incarnation: int) -> Mapping[PartitionId, PartitionEnd]:
    """Return the ends that a process has noted by partition; none if there is no readable note."""
    key = stream_ends_key(incarnation)

    def decode(data: memoryview) -> StreamEnds:
        envelope = open_envelope(data, Kind.STREAM_ENDS, STREAM_ENDS_PREFIX, incarnation, key)
        payload: StreamEnds = decode_payload(envelope, StreamEnds, key)
        return payload

    try:
        ends = await fetch_checked(store, key, ENVELOPE_BYTES_MAX, decode)
    except (NotFoundError, DamagedError):
        return {}
    return {(bytes.fromhex(row.topic_id), row.partition): row for row in ends.partitions}


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
