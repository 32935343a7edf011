"""Batches that come in another codec than their topic keeps (`compression.type`).

They are recompressed beside the event loop, before anything of their request is appended. Its
connection waits meanwhile, so requests are appended and answered in the order in which they came.
What waits counts in the WAL's buffer, which makes producers wait; what is decompressed at once is
bounded by the number of threads and by what one batch may decompress to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from neve import runtime
from neve.broker.errors import BatchTooLargeError
from neve.broker.produce import Refusals, checked_batch
from neve.broker.refused_records import DECOMPRESSED_BYTES_MAX
from neve.errors import NeveError
from neve.protocol.messages.produce import ProduceRequest
from neve.records.batch import HEADER_BYTES, parse_header, recompressed
from neve.records.compression import OversizeError

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.log.wal.writer import WalWriter


class ForeignBatch(NamedTuple):
    """A batch in another codec than its topic's, and its part of the request."""

    part: ProduceRequest.Partition
    records: memoryview
    name: str
    codec: int
    bytes_max: int


def batches_to_recompress(node: Node, request: ProduceRequest) -> list[ForeignBatch]:
    """Those of a produce request that do not have their topic's codec."""
    found = []
    state = node.cluster.state
    for asked in request.topic_data:
        topic = state.topic(asked.name) if asked.name else state.topic_by_id(asked.topic_id)
        codec = None if topic is None else node.led.codecs.get(topic.id_bytes)
        if topic is None or codec is None:
            continue
        for part in asked.partition_data:
            leader, records = node.leader_of(topic.id_bytes, part.index), part.records
            if leader is None or records is None or len(records) < HEADER_BYTES:
                continue  # it will be refused
            if parse_header(records).codec != codec:
                bytes_max = leader.config.max_message_bytes
                found.append(ForeignBatch(part, records, leader.name, codec, bytes_max))
    return found


class Recompression:
    """What is being recompressed for all connections of a broker."""

    def __init__(self, writer: WalWriter, threads: runtime.ThreadPool) -> None:
        self._writer = writer
        self._threads = threads
        self._requests = 0

    @property
    def is_busy(self) -> bool:
        return self._requests > 0

    async def run(self, batches: Sequence[ForeignBatch]) -> Refusals:
        """Put each batch into its request in its topic's codec.

        Returns what is wrong with those that cannot be recompressed.
        """
        size = sum(len(batch.records) for batch in batches)
        self._requests += 1
        self._writer.reserve(size)
        refused: dict[int, NeveError] = {}
        try:
            for batch in batches:
                error = await self._threads.offload(_recompress, batch)
                if error is not None:
                    refused[id(batch.part)] = error
        finally:
            self._requests -= 1
            self._writer.unreserve(size)
        return refused


def _recompress(batch: ForeignBatch) -> NeveError | None:
    part, records = batch.part, batch.records
    try:
        checked_batch(records, batch.bytes_max, batch.name)
    except NeveError:
        return None  # it is refused when it is to be appended
    try:
        part.records = memoryview(recompressed(records, batch.codec, DECOMPRESSED_BYTES_MAX))
    except OversizeError:
        return BatchTooLargeError(
            f"{batch.name}: a batch decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes, the "
            "most that is recompressed for a topic with a compression.type: send smaller batches, "
            "or send them in that codec"
        )
    except NeveError as error:
        return error
    return None
