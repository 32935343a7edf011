"""The response to a produce request.

Most responses say of one partition that its batch is in the log, and differ from one another in
three numbers. Those are not encoded field by field: the bytes of one such response, made once, are
a template for all others.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

from neve.broker.error_codes import code_of, produce_error
from neve.broker.errors import TimedOutError
from neve.broker.refused_records import Blamed, TimesRefusedError
from neve.errors import ClosedError, NeveError
from neve.log.wal.pending import Commit
from neve.protocol.frames import RequestHeader, response_frame
from neve.protocol.messages.produce import PRODUCE, ProduceResponse
from neve.store.port import Buffer

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
NO_TIME = -1
# Templates that are kept: one for each version and partition that is written to.
TEMPLATES_MAX = 4_096
_Partition = ProduceResponse.Partition
_Topic = ProduceResponse.Topic
_TIMED_OUT = code_of(TimedOutError)
# Numbers that mark the places in a template; no name has such bytes, being UTF-8.
_CORRELATION_ID, _BASE_OFFSET, _START_OFFSET = 0x7FFFFEFD, 0x7FFFFEFDFCFBFAF9, 0x7FF9FAFBFCFDFEFF


class TopicName(NamedTuple):
    """A topic as the request names it. The request itself, with its records, is not kept."""

    name: str
    topic_id: bytes


class BatchOutcome(NamedTuple):
    """What happened to one partition's batch. `commit` is None where nothing was appended."""

    number: int
    commit: Commit | None
    base_offset: int = -1
    append_time_ms: int = NO_TIME
    start_offset: int = -1
    error: int = 0
    message: str | None = None
    in_doubt: bool = False
    """Refused, and answered once `commit` has failed with the reason: whether we still lead, or
    which records are to blame, has to be found out first."""

    @property
    def is_plain(self) -> bool:
        """Whether the response says only where the batch is in the log."""
        return not self.error and not self.in_doubt and self.append_time_ms == NO_TIME


class PendingProduce:
    """The response to one produce request, ready when all that it waits for is decided."""

    held_bytes = 0  # what it holds is counted among what waits for the store
    owed = True
    __slots__ = (
        "_correlation_id",
        "_given_up",
        "_rows",
        "_version",
        "_waits_for_all",
        "appended",
        "closes",
        "commits",
        "deadline",
        "error",
        "silent",
        "started",
    )

    def __init__(
        self,
        header: RequestHeader,
        acks: int,
        rows: list[tuple[TopicName, list[BatchOutcome]]],
        started: float,
        timeout_ms: int,
    ) -> None:
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._rows = rows
        self._given_up = False
        self.started = started
        self.deadline = started + timeout_ms / 1000
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
        self._waits_for_all = acks == ACKS_ALL
        self.commits = self.appended if self._waits_for_all else doubts
        self.silent = acks == ACKS_NONE
        # A producer that wants no answers learns of an error by losing its connection.
        self.closes = self.silent and self.error != 0

    @property
    def ready(self) -> bool:
        for commit in self.commits:
            if not commit.done:
                return self._given_up
        return True

    def give_up(self) -> None:
        """Respond with a time-out for what is not committed by now."""
        self._given_up = True

    def is_like(self, other: PendingProduce) -> bool:
        """Whether both are of one moment and have the same outcome, and so count alike."""
        return (
            self.started == other.started
            and self.error == other.error
            and bool(self.commits) == bool(other.commits)
        )

    def frame(self) -> list[Buffer]:
        rows = self._rows
        if len(rows) == 1 and len(rows[0][1]) == 1 and not self._given_up:
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
        parts = ProduceResponse(responses=topics).encode(self._version)
        return response_frame(PRODUCE, self._version, self._correlation_id, parts)

    def _partition(self, row: BatchOutcome) -> ProduceResponse.Partition:
        if row.commit is not None and (self._waits_for_all or row.in_doubt):
            if not row.commit.done:
                self.error = _TIMED_OUT
                return _nowhere(row.number, _TIMED_OUT)
            failure = row.commit.failure
            if failure is not None:
                code, message = produce_error(_as_neve_error(failure))
                self.error = code
                return _nowhere(row.number, code, message, _blamed(failure))
        return _Partition(
            index=row.number,
            error_code=row.error,
            base_offset=row.base_offset,
            log_append_time_ms=row.append_time_ms,
            log_start_offset=row.start_offset,
            error_message=row.message,
        )


def _nowhere(
    number: int, code: int, message: str | None = None, blamed: Sequence[Blamed] = ()
) -> ProduceResponse.Partition:
    """A partition whose batch has no place in the log: an offset of 0 would be one."""
    return _Partition(
        index=number,
        error_code=code,
        base_offset=-1,
        record_errors=[
            ProduceResponse.RecordError(
                batch_index=each.batch_index, batch_index_error_message=each.reason
            )
            for each in blamed
        ],
        error_message=message,
    )


def _blamed(failure: BaseException) -> Sequence[Blamed]:
    return failure.blamed if isinstance(failure, TimesRefusedError) else ()


class _Template:
    """The bytes of a response about one partition, without the numbers that differ."""

    __slots__ = ("_has_start", "_pieces", "_struct")

    def __init__(self, frame: bytes) -> None:
        start, frame = _cut(frame, struct.pack(">i", _CORRELATION_ID))
        middle, frame = _cut(frame, struct.pack(">q", _BASE_OFFSET))
        self._has_start = struct.pack(">q", _START_OFFSET) in frame
        if self._has_start:
            before, frame = _cut(frame, struct.pack(">q", _START_OFFSET))
            self._pieces = (start, middle, before, frame)
            form = f">{len(start)}si{len(middle)}sq{len(before)}sq{len(frame)}s"
        else:
            self._pieces = (start, middle, b"", frame)
            form = f">{len(start)}si{len(middle)}sq{len(frame)}s"
        self._struct = struct.Struct(form)

    def filled(self, correlation_id: int, base_offset: int, start_offset: int) -> bytes:
        first, second, third, last = self._pieces
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
