"""Batches that come in another codec than their topic keeps (`compression.type`).

They are recompressed beside the event loop, before anything of their request is appended. Its
connection waits meanwhile, so requests are appended and answered in the order in which they came.
What waits counts in the WAL's buffer, which makes producers wait; what is decompressed at once is
bounded by the number of threads and by what one batch may decompress to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from neve import runtime
from neve.broker.error_codes import RefusedError
from neve.broker.produce import checked_batch
from neve.broker.refused_records import DECOMPRESSED_BYTES_MAX
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode
from neve.records.batch import HEADER_BYTES, parse_header, recompressed
from neve.records.compression import OversizeError

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.log.wal.writer import WalWriter


class ForeignBatch(NamedTuple):
    """A batch in another codec than its topic's, and where in its request it stands."""

    parts: list[Any]
    at: int
    name: str
    codec: int
    bytes_max: int

    @property
    def size(self) -> int:
        return len(self.parts[self.at].records)


@dataclass(frozen=True, slots=True)
class _RefusedPart:
    """Stands in a request for a partition whose batch cannot be recompressed."""

    index: int
    error: NeveError

    @property
    def records(self) -> memoryview:
        raise self.error


def batches_to_recompress(node: Node, request: Any) -> list[ForeignBatch]:
    """Those of a produce request that do not have their topic's codec."""
    found = []
    for asked in request.topic_data:
        topic = node.topic(asked.name) if asked.name else node.topic_by_id(asked.topic_id)
        codec = None if topic is None else node.led.codecs.get(topic.id_bytes)
        if topic is None or codec is None:
            continue
        for at, part in enumerate(asked.partition_data):
            log, records = node.log_of(topic.id_bytes, part.index), part.records
            if log is None or records is None or len(records) < HEADER_BYTES:
                continue  # it will be refused
            if parse_header(records).codec != codec:
                bytes_max = node.config_of(log).max_message_bytes
                parts = asked.partition_data
                found.append(ForeignBatch(parts, at, log.name, codec, bytes_max))
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

    async def run(self, batches: Sequence[ForeignBatch]) -> None:
        """Put each batch into its request in its topic's codec, or what is wrong with it."""
        size = sum(batch.size for batch in batches)
        self._requests += 1
        self._writer.reserve(size)
        try:
            for batch in batches:
                await self._threads.offload(_recompress, batch)
        finally:
            self._requests -= 1
            self._writer.unreserve(size)


def _recompress(batch: ForeignBatch) -> None:
    part = batch.parts[batch.at]
    try:
        checked_batch(part.records, batch.bytes_max, batch.name)
    except NeveError:
        return  # it is refused when it is to be appended
    try:
        part.records = memoryview(recompressed(part.records, batch.codec, DECOMPRESSED_BYTES_MAX))
    except OversizeError:
        reason = (
            f"{batch.name}: a batch decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes, the "
            "most that is recompressed for a topic with a compression.type: send smaller batches, "
            "or send them in that codec"
        )
        refusal = RefusedError(ErrorCode.MESSAGE_TOO_LARGE, reason)
        batch.parts[batch.at] = _RefusedPart(part.index, refusal)
    except NeveError as error:
        batch.parts[batch.at] = _RefusedPart(part.index, error)
