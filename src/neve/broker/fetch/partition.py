"""One partition of a fetch: what the consumer asks for, and the result of reading it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve import runtime
from neve.broker.admin.partitions import NO_EPOCH, check_log_epoch
from neve.broker.error_codes import LEADER_CHANGED, code_of, fetch_error
from neve.broker.errors import NotLeaderError, UnknownPartitionError, UnknownTopicIdError
from neve.errors import NeveError
from neve.log.reading.record_chunk import RecordChunk
from neve.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from neve.broker.admin.cluster import NamedLeaders
    from neve.cluster.node import Node
    from neve.cluster.state import Topic
    from neve.log.partition import PartitionLog
    from neve.log.replica import ReplicaLog

    ServedLog: TypeAlias = PartitionLog | ReplicaLog

NEVER = -2
NO_REPLICA = -1
NOT_LEADER = code_of(NotLeaderError)
_NO_RECORDS = b""
_UNKNOWN = code_of(UnknownPartitionError)
_UNKNOWN_ID = code_of(UnknownTopicIdError)


class Consumer(NamedTuple):
    """The client: whether it names topics by id, and its rack, if it may read from followers."""

    by_id: bool
    rack: str


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

    __slots__ = (
        "above_end",
        "chunk",
        "cold",
        "error",
        "lacks_bytes",
        "log",
        "preferred",
        "requested",
        "unopened",
    )

    def __init__(self, requested: FetchPartition) -> None:
        self.requested = requested
        self.log: ServedLog | None = None
        self.unopened: Topic | None = None  # the topic, if this follower must open its copy first
        self.preferred = NO_REPLICA  # the node that the consumer should read from instead
        self.chunk: RecordChunk | None = None
        self.error = 0
        self.cold = False  # its records are not in memory
        self.lacks_bytes = 0  # the size of records that were found but did not fit
        self.above_end = False  # its offset is above the end that this broker knows

    def find_log(self, node: Node, consumer: Consumer) -> None:
        """Set the log if this broker serves the partition in the client's epoch, else the error.

        The leader serves every consumer, but may name a follower in the consumer's rack. A follower
        serves consumers of its own rack.
        """
        requested, state, by_id = self.requested, node.cluster.state, consumer.by_id
        topic = state.topic_by_id(requested.topic_id) if by_id else state.topic(requested.topic)
        if topic is None:
            self.error = _UNKNOWN_ID if by_id else _UNKNOWN
            return
        leader = node.leader_of(topic.id_bytes, requested.index)
        if leader is None:
            self._find_copy(node, topic, consumer)
            return
        if self._has_epoch_of(leader.log):
            self.log = leader.log
            if consumer.rack:
                self._find_preferred(node, topic, leader.log, consumer.rack)

    def _has_epoch_of(self, log: ServedLog) -> bool:
        # Most requests name the current epoch, or none. These need no call.
        if NO_EPOCH != self.requested.leader_epoch != log.epoch:
            try:
                check_log_epoch(log, self.requested.leader_epoch)
            except NeveError as error:
                self.error = fetch_error(error)
                return False
        return True

    def _find_preferred(self, node: Node, topic: Topic, log: PartitionLog, rack: str) -> None:
        # The leader alone can say that an offset is out of range.
        if log.start_offset <= self.requested.offset <= log.high_watermark:
            found = node.replication.recommended(rack, topic, self.requested.index)
            self.preferred = NO_REPLICA if found is None else found

    def _find_copy(self, node: Node, topic: Topic, consumer: Consumer) -> None:
        number, replicas = self.requested.index, node.replication.replicas
        if not 0 <= number < len(topic.partitions):
            self.error = _UNKNOWN
            return
        own = node.cluster.state.brokers.get(node.incarnation)
        if own is None or not consumer.rack or own.rack != consumer.rack:
            self.error = NOT_LEADER
            return
        log = replicas.find(topic, number)
        if log is not None and self._has_epoch_of(log):
            self.log = log
        elif log is None and replicas.follows(topic, number):
            self.unopened = topic
        elif log is None:
            self.error = NOT_LEADER

    async def open(self, node: Node) -> None:
        """Open this follower's copy of the partition, and set the log or the error."""
        assert self.unopened is not None
        try:
            log = await node.replication.replicas.open(self.unopened, self.requested.index)
        except NeveError:
            self.error = NOT_LEADER  # the leader knows better
        else:
            if self._has_epoch_of(log):
                self.log = log
        self.unopened = None

    @property
    def has_records(self) -> bool:
        return self.chunk is not None and self.chunk.size > 0

    @property
    def has_changed(self) -> bool:
        """Whether an incremental response must contain this partition."""
        log, sent = self.log, self.requested
        if self.error or log is None or self.has_records or self.preferred != NO_REPLICA:
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
            preferred_read_replica=self.preferred,
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


async def open_copies(
    reads: Sequence[PartitionRead], node: Node, seconds: float
) -> list[tuple[PartitionRead, ServedLog]]:
    """Open the copies that this follower has not opened yet. Returns those that are open now.

    One that takes longer is opened all the same, for later requests.
    """
    unopened = [read for read in reads if read.unopened is not None]
    with contextlib.suppress(TimeoutError):
        async with runtime.deadline(seconds):
            await runtime.gather(*(read.open(node) for read in unopened))
    return [(read, read.log) for read in unopened if read.log is not None]


def name_leaders(
    response: FetchResponse,
    refused: list[tuple[FetchPartition, FetchResponse.Partition]],
    leaders: NamedLeaders,
) -> None:
    """Name the leader of each partition that was refused because its leader has changed."""
    for requested, row in refused:
        if row.error_code not in LEADER_CHANGED:
            continue
        leader = leaders.find(requested.topic, requested.topic_id, requested.index)
        if leader is not None:
            row.current_leader = FetchResponse.Leader(
                leader_id=leader.broker.node_id, leader_epoch=leader.epoch
            )
    response.node_endpoints = [FetchResponse.Node(**each._asdict()) for each in leaders.brokers]
