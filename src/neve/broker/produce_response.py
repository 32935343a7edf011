"""The response to a produce request.

Most responses report one appended batch, and differ from one another in three numbers. They are not
encoded field by field: the first such response for a partition is a template for all others.

A response that refuses a partition because another broker leads it names that broker (KIP-951). It
is looked up when the response is encoded: a commit may fail long after its batch arrived.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

from neve.broker.admin.cluster import ClusterAdmin, NamedLeaders
from neve.broker.error_codes import LEADER_CHANGED, code_of, produce_error
from neve.broker.errors import TimedOutError
from neve.broker.invalid_records import InvalidRecord, InvalidTimesError
from neve.errors import ClosedError, NeveError
from neve.log.wal.pending import Commit
from neve.protocol.frames import RequestHeader, response_frame
from neve.protocol.messages.produce import PRODUCE, ProduceRequest, ProduceResponse
from neve.store.port import Buffer

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
# The first version in which requests name topics by id.
TOPIC_IDS_SINCE = 13
NO_TIME = -1
# How many templates are kept: one for each version and partition.
TEMPLATES_MAX = 4_096
_Partition = ProduceResponse.Partition
_Topic = ProduceResponse.Topic
_TIMED_OUT = code_of(TimedOutError)
# Placeholders in a template. Topic names are UTF-8, so these bytes do not occur in them.
_CORRELATION_ID, _BASE_OFFSET, _START_OFFSET = 0x7FFFFEFD, 0x7FFFFEFDFCFBFAF9, 0x7FF9FAFBFCFDFEFF


class TopicName(NamedTuple):
    """A topic as the request names it, kept in place of the request with its records."""

    name: str
    topic_id: bytes


class BatchOutcome(NamedTuple):
    """The outcome of one partition's batch. `commit` is None if the batch was not appended."""

    number: int
    commit: Commit | None
    base_offset: int = -1
    append_time_ms: int = NO_TIME
    start_offset: int = -1
    error: int = 0
    message: str | None = None
    in_doubt: bool = False
    """The batch is refused, and `commit` fails once the reason is known: the broker is checking
    whether it still leads, or which records are invalid."""

    @property
    def is_plain(self) -> bool:
        """Whether the response needs nothing but the batch's offsets."""
        return not self.error and not self.in_doubt and self.append_time_ms == NO_TIME


class PendingProduce:
    """The response to one produce request, ready when all its commits are decided."""

    held_bytes = 0  # its batches count in the WAL buffer
    owed = True
    __slots__ = (
        "_cluster",
        "_correlation_id",
        "_rows",
        "_timed_out",
        "_version",
        "_waits_for_all",
        "appended",
        "commits",
        "deadline",
        "error",
        "silent",
        "started",
    )

    def __init__(
        self,
        header: RequestHeader,
        request: ProduceRequest,
        rows: list[tuple[TopicName, list[BatchOutcome]]],
        started: float,
        cluster: ClusterAdmin,
    ) -> None:
        self._cluster = cluster
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._rows = rows
        self._timed_out = False
        self.started = started
        self.deadline = started + request.timeout_ms / 1000
        self.error = 0  # the first of its errors, for metrics
        self.appended: list[Commit] = []
        doubts: list[Commit] = []
        for _, partitions in rows:
            for row in partitions:
                commit = row.commit
                self.error = self.error or row.error
                if commit is None:
                    continue
                if not self.appended or commit is not self.appended[-1]:
                    self.appended.append(commit)
                if row.in_doubt:
                    doubts.append(commit)
        acks = request.acks
        self._waits_for_all = acks == ACKS_ALL
        self.commits = self.appended if self._waits_for_all else doubts
        self.silent = acks == ACKS_NONE

    @property
    def closes(self) -> bool:
        """Whether to close the connection: with acks=0 the only way to report an error."""
        return self.silent and self.error != 0

    @property
    def ready(self) -> bool:
        for commit in self.commits:
            if not commit.done:
                return self._timed_out
        return True

    def time_out(self) -> None:
        """Respond with a time-out for the batches that are not committed yet."""
        self._timed_out = True

    def is_like(self, other: PendingProduce) -> bool:
        """Whether both arrived together and have the same outcome, so that they count alike."""
        return (
            self.started == other.started
            and self.error == other.error
            and bool(self.commits) == bool(other.commits)
        )

    def frame(self) -> list[Buffer]:
        rows = self._rows
        if len(rows) == 1 and len(rows[0][1]) == 1 and not self._timed_out:
            named, (row,) = rows[0]
            commit = row.commit
            if row.is_plain and (not self._waits_for_all or commit is None or commit.succeeded):
                template = _template(self._version, named, row.number)
                return [template.filled(self._correlation_id, row.base_offset, row.start_offset)]
        return self._encoded()

    def _encoded(self) -> list[Buffer]:
        topics = [
            _Topic(
                name=named.name,
                topic_id=named.topic_id,
                partition_responses=[self._partition(row) for row in rows],
            )
            for named, rows in self._rows
        ]
        response = ProduceResponse(responses=topics)
        if self.error:
            self._name_leaders(response)
        parts = response.encode(self._version)
        return response_frame(PRODUCE, self._version, self._correlation_id, parts)

    def _name_leaders(self, response: ProduceResponse) -> None:
        """Name the leader of each partition that was refused because its leader has changed."""
        leaders = NamedLeaders(self._cluster, by_id=self._version >= TOPIC_IDS_SINCE)
        for topic in response.responses:
            for row in topic.partition_responses:
                if row.error_code not in LEADER_CHANGED:
                    continue
                leader = leaders.find(topic.name, topic.topic_id, row.index)
                if leader is not None:
                    row.current_leader = ProduceResponse.Leader(
                        leader_id=leader.broker.node_id, leader_epoch=leader.epoch
                    )
        response.node_endpoints = [
            ProduceResponse.Node(**each._asdict()) for each in leaders.brokers
        ]

    def _partition(self, row: BatchOutcome) -> ProduceResponse.Partition:
        if row.commit is not None and (self._waits_for_all or row.in_doubt):
            if not row.commit.done:
                self.error = _TIMED_OUT
                return _refused(row.number, _TIMED_OUT)
            failure = row.commit.failure
            if failure is not None:
                code, message = produce_error(_as_neve_error(failure))
                self.error = code
                return _refused(row.number, code, message, _invalid_records(failure))
        return _Partition(
            index=row.number,
            error_code=row.error,
            base_offset=row.base_offset,
            log_append_time_ms=row.append_time_ms,
            log_start_offset=row.start_offset,
            error_message=row.message,
        )


def _refused(
    number: int, code: int, message: str | None = None, invalid: Sequence[InvalidRecord] = ()
) -> ProduceResponse.Partition:
    """A partition whose batch is not in the log: base_offset is -1, as 0 would be an offset."""
    return _Partition(
        index=number,
        error_code=code,
        base_offset=-1,
        record_errors=[
            ProduceResponse.RecordError(
                batch_index=each.batch_index, batch_index_error_message=each.reason
            )
            for each in invalid
        ],
        error_message=message,
    )


def _invalid_records(failure: BaseException) -> Sequence[InvalidRecord]:
    return failure.records if isinstance(failure, InvalidTimesError) else ()


class _Template:
    """The bytes of a response about one partition, around the three numbers that differ."""

    __slots__ = ("_fixed_parts", "_has_start", "_struct")

    def __init__(self, frame: bytes) -> None:
        start, frame = _cut(frame, struct.pack(">i", _CORRELATION_ID))
        middle, frame = _cut(frame, struct.pack(">q", _BASE_OFFSET))
        self._has_start = struct.pack(">q", _START_OFFSET) in frame
        if self._has_start:
            before, frame = _cut(frame, struct.pack(">q", _START_OFFSET))
            self._fixed_parts = (start, middle, before, frame)
            form = f">{len(start)}si{len(middle)}sq{len(before)}sq{len(frame)}s"
        else:
            self._fixed_parts = (start, middle, b"", frame)
            form = f">{len(start)}si{len(middle)}sq{len(frame)}s"
        self._struct = struct.Struct(form)

    def filled(self, correlation_id: int, base_offset: int, start_offset: int) -> bytes:
        first, second, third, last = self._fixed_parts
        if self._has_start:
            return self._struct.pack(
                first, correlation_id, second, base_offset, third, start_offset, last
            )
        return self._struct.pack(first, correlation_id, second, base_offset, last)


def _cut(frame: bytes, mark: bytes) -> tuple[bytes, bytes]:
    before, _, behind = frame.partition(mark)
    return before, behind


@functools.lru_cache(maxsize=TEMPLATES_MAX)
def _template(version: int, named: TopicName, number: int) -> _Template:
    row = _Partition(index=number, base_offset=_BASE_OFFSET, log_start_offset=_START_OFFSET)
    topic = _Topic(name=named.name, topic_id=named.topic_id, partition_responses=[row])
    parts = ProduceResponse(responses=[topic]).encode(version)
    return _Template(b"".join(response_frame(PRODUCE, version, _CORRELATION_ID, parts)))


def _as_neve_error(failure: BaseException) -> NeveError:
    if isinstance(failure, NeveError):
        return failure
    return ClosedError(f"the record was not committed: {failure!r}")
