"""One partition of a fetch: what the consumer asks for, and the result of reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.partitions import NO_EPOCH, check_epoch
from neve.broker.error_codes import code_of, fetch_error
from neve.broker.errors import NotLeaderError, UnknownPartitionError, UnknownTopicIdError
from neve.errors import NeveError
from neve.log.reading.record_chunk import RecordChunk
from neve.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.log.partition import PartitionLog

NEVER = -2
NOT_LEADER = code_of(NotLeaderError)
_NO_RECORDS = b""
_UNKNOWN = code_of(UnknownPartitionError)
_UNKNOWN_ID = code_of(UnknownTopicIdError)


class FetchPartition:
    """One partition of a fetch. In a session it lives from one request to the next."""

    __slots__ = (
        "index",
        "leader_epoch",
        "max_bytes",
        "offset",
        "sent_start",
        "sent_watermark",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, requested: FetchRequest.Partition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = requested.partition
        # From the last response of this session: only changes are sent again.
        self.sent_watermark = NEVER
        self.sent_start = NEVER
        self.update(requested)

    def update(self, requested: FetchRequest.Partition) -> None:
        """Copy the offset, epoch and limit of the next request."""
        self.offset = requested.fetch_offset
        self.max_bytes = requested.partition_max_bytes
        self.leader_epoch = requested.current_leader_epoch

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.index


class PartitionRead:
    """The result of reading one partition for one request, as far as it is known."""

    __slots__ = ("above_end", "chunk", "cold", "error", "lacks_bytes", "log", "requested")

    def __init__(self, requested: FetchPartition) -> None:
        self.requested = requested
        self.log: PartitionLog | None = None
        self.chunk: RecordChunk | None = None
        self.error = 0
        self.cold = False  # its records are not in memory
        self.lacks_bytes = 0  # the size of records that were found but did not fit
        self.above_end = False  # its offset is above the end that this broker knows

    def find_log(self, node: Node, *, by_id: bool) -> None:
        """Set the log if this broker leads the partition in the client's epoch, else the error."""
        requested, state = self.requested, node.cluster.state
        topic = state.topic_by_id(requested.topic_id) if by_id else state.topic(requested.topic)
        if topic is None:
            self.error = _UNKNOWN_ID if by_id else _UNKNOWN
            return
        leader = node.leader_of(topic.id_bytes, requested.index)
        if leader is None:
            known = 0 <= requested.index < len(topic.partitions)
            self.error = NOT_LEADER if known else _UNKNOWN
            return
        # Most requests name the current epoch, or none. These need no call.
        if NO_EPOCH != requested.leader_epoch != leader.log.epoch:
            try:
                check_epoch(leader, requested.leader_epoch)
            except NeveError as error:
                self.error = fetch_error(error)
                return
        self.log = leader.log

    @property
    def has_records(self) -> bool:
        return self.chunk is not None and self.chunk.size > 0

    @property
    def has_changed(self) -> bool:
        """Whether an incremental response must contain this partition."""
        log, sent = self.log, self.requested
        if self.error or log is None or self.has_records:
            return True
        return sent.sent_watermark != log.high_watermark or sent.sent_start != log.start_offset

    def response(self, *, read_committed: bool) -> FetchResponse.Partition:
        """Build the partition's part of the response, and note for the session what it says.

        For a partition without an error: see `refusal`.
        """
        log, requested = self.log, self.requested
        assert log is not None
        watermark, start = log.high_watermark, log.start_offset
        requested.sent_watermark, requested.sent_start = watermark, start
        return FetchResponse.Partition(
            partition_index=requested.index,
            high_watermark=watermark,
            last_stable_offset=watermark,
            log_start_offset=start,
            aborted_transactions=[] if read_committed else None,
            records=_NO_RECORDS if self.chunk is None else self.chunk.parts,
        )

    def refusal(self, *, read_committed: bool) -> FetchResponse.Partition:
        """The same for a partition with an error: it has no records."""
        log, requested = self.log, self.requested
        watermark, start = (-1, -1) if log is None else (log.high_watermark, log.start_offset)
        requested.sent_watermark, requested.sent_start = watermark, start
        return FetchResponse.Partition(
            partition_index=requested.index,
            error_code=self.error,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=start,
            aborted_transactions=[] if read_committed else None,
            records=_NO_RECORDS,
        )
