"""Recompress batches whose codec differs from their topic's `compression.type`.

Threads recompress the batches of a request before any of them is appended. The connection waits
meanwhile, so requests are appended and get responses in the order in which they were sent. Waiting
batches count in the WAL buffer, which throttles producers. The decompressed bytes are bounded by
the number of threads and by the largest size of one decompressed batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from neve import runtime
from neve.broker.errors import BatchTooLargeError
from neve.broker.invalid_records import DECOMPRESSED_BYTES_MAX
from neve.broker.produce import Refusals, checked_batch
from neve.errors import NeveError
from neve.protocol.messages.produce import ProduceRequest
from neve.records.batch import HEADER_BYTES, parse_header, recompressed
from neve.records.compression import OversizeError

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.log.wal.writer import WalWriter


class BatchToRecompress(NamedTuple):
    """A batch whose codec differs from its topic's, and its part of the request."""

    part: ProduceRequest.Partition
    records: memoryview
    name: str
    codec: int
    bytes_max: int


def batches_to_recompress(node: Node, request: ProduceRequest) -> list[BatchToRecompress]:
    """Return the batches of a request whose codec differs from their topic's."""
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
                continue  # `produce` refuses it
            if parse_header(records).codec != codec:
                bytes_max = leader.config.max_message_bytes
                found.append(BatchToRecompress(part, records, leader.name, codec, bytes_max))
    return found


class Recompression:
    """Recompresses batches for all connections of a broker."""

    def __init__(self, writer: WalWriter, threads: runtime.ThreadPool) -> None:
        self._writer = writer
        self._threads = threads
        self._requests = 0

    @property
    def is_busy(self) -> bool:
        return self._requests > 0

    async def run(self, batches: Sequence[BatchToRecompress]) -> Refusals:
        """Replace each batch in its request by one in its topic's codec.

        Returns the errors of batches that cannot be recompressed.
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


def _recompress(batch: BatchToRecompress) -> NeveError | None:
    part, records = batch.part, batch.records
    try:
        checked_batch(records, batch.bytes_max, batch.name)
    except NeveError:
        return None  # `produce` refuses it
    try:
        part.records = memoryview(recompressed(records, batch.codec, DECOMPRESSED_BYTES_MAX))
    except OversizeError:
        return BatchTooLargeError(
            f"{batch.name}: a batch decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes, the "
            "limit for recompression to the topic's compression.type: send smaller batches, or "
            "send them in that codec"
        )
    except NeveError as error:
        return error
    return None
