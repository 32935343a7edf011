"""Produce: check each batch, give it its place in the log, and answer when it is committed.

This is an ordinary call without a task, a future or a copy of its own. A batch is checked whole
before anything of it is appended; what is wrong with one partition's batch does not touch the
others'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from neve import runtime
from neve.broker.error_codes import RefusedError, produce_error
from neve.errors import ClosedError, FencedError, InvalidError, NeveError
from neve.log.producers import OutOfOrderSequenceError, ProducerFencedError
from neve.log.wal.pending import Commit
from neve.protocol.codes import ErrorCode
from neve.protocol.frames import RequestHeader, response_frame
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import TRANSACTIONAL, BatchHeader, check_produced, patch_log_append_time
from neve.store.port import Buffer

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic
    from neve.cluster.topic_config import TopicConfig
    from neve.log.partition import PartitionLog

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
# The first version in which a topic is named by its id, and the first with one batch a partition.
_TOPIC_IDS_SINCE = 13
_ONE_BATCH_SINCE = 3
_NO_TRANSACTIONS = "transactions are not supported"
_Response = PRODUCE.Response
_Partition = _Response.Partition
_Topic = _Response.Topic


class Named(NamedTuple):
    """A topic as the request names it; its records are not kept for the answer's sake."""

    name: str
    topic_id: bytes


class Row(NamedTuple):
    """What happened to one partition's batch. `commit` is None where nothing was appended."""

    number: int
    commit: Commit | None
    base_offset: int = -1
    append_time_ms: int = -1
    start_offset: int = -1
    error: int = 0
    message: str | None = None
    in_doubt: bool = False
    """Refused by what we know of its producer: told once it is sure that we still lead."""


class ProduceAnswer:
    """The answer to one produce request, ready when what it waits for is decided."""

    held_bytes = 0  # what it holds is counted among what waits for the store
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
        rows: list[tuple[Named, list[Row]]],
        started: float,
        deadline: float,
    ) -> None:
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._rows = rows
        self._given_up = False
        self.started = started
        self.deadline = deadline
        self.error = 0  # the first of its errors, for those who count
        self.appended: list[Commit] = []
        for _, partitions in rows:
            for row in partitions:
                commit = row.commit
                if commit is None:
                    self.error = self.error or row.error
                elif not self.appended or commit is not self.appended[-1]:
                    self.appended.append(commit)
        self._waits_for_all = acks == ACKS_ALL
        self.commits = self.appended
        if acks != ACKS_ALL:
            doubts = [row.commit for _, partitions in rows for row in partitions if row.in_doubt]
            self.commits = [commit for commit in doubts if commit is not None]
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
        """Too late: what is not committed by now is answered as timed out."""
        self._given_up = True

    def frame(self) -> list[Buffer]:
        topics = [
            _Topic(
                name=named.name,
                topic_id=named.topic_id,
                partition_responses=[self._partition(row) for row in rows],
            )
            for named, rows in self._rows
        ]
        parts = _Response.encode(_Response(responses=topics), self._version)
        return response_frame(PRODUCE, self._version, self._correlation_id, parts)

    def _partition(self, row: Row) -> Any:
        if row.commit is not None and (self._waits_for_all or row.in_doubt):
            if not row.commit.done:
                self.error = ErrorCode.REQUEST_TIMED_OUT
                return _Partition(index=row.number, error_code=ErrorCode.REQUEST_TIMED_OUT)
            failure = row.commit.failure
            if failure is not None:
                code, message = produce_error(_told(failure))
                self.error = code
                return _Partition(index=row.number, error_code=code, error_message=message)
        return _Partition(
            index=row.number,
            error_code=row.error,
            base_offset=row.base_offset,
            log_append_time_ms=row.append_time_ms,
            log_start_offset=row.start_offset,
            error_message=row.message,
        )


def _told(failure: BaseException) -> NeveError:
    if isinstance(failure, NeveError):
        return failure
    return ClosedError(f"the record was not committed: {failure!r}")


def produce(broker: Broker, request: Any, header: RequestHeader) -> ProduceAnswer:
    """Append everything that may be appended. The request's bytes are patched in place."""
    acks = request.acks
    started = runtime.monotonic()
    by_id = header.api_version >= _TOPIC_IDS_SINCE
    rows: list[tuple[Named, list[Row]]] = []
    if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        refusal = _refusing(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: use 0, 1 or -1 (all)")
    elif request.transactional_id is not None:
        refusal = _refusing(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
    else:
        refusal = None
    for asked in request.topic_data:
        named, parts = Named(asked.name, asked.topic_id), asked.partition_data
        if refusal is not None:
            rows.append((named, [refusal(part.index) for part in parts]))
            continue
        topic = broker.node.topic_by_id(named.topic_id) if by_id else broker.node.topic(named.name)
        rows.append((named, [_append(broker, topic, part, by_id) for part in parts]))
    return ProduceAnswer(header, acks, rows, started, started + request.timeout_ms / 1000)


def _refusing(code: ErrorCode, message: str) -> Any:
    return lambda index: Row(index, None, error=code, message=message)


def _append(broker: Broker, topic: Topic | None, part: Any, by_id: bool) -> Row:
    index = part.index
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Row(index, None, error=code)
    log = broker.node.log_of(topic.id_bytes, index)
    if log is None:
        known = 0 <= index < len(topic.partitions)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Row(index, None, error=code)
    try:
        return _append_to(broker, log, part.records, index)
    except (OutOfOrderSequenceError, ProducerFencedError) as error:
        return Row(index, _doubted(broker, error), in_doubt=True)
    except NeveError as error:
        code, message = produce_error(error)
        return Row(index, None, error=code, message=message)


def _doubted(broker: Broker, refusal: NeveError) -> Commit:
    """Decided when it is known whether we were entitled to refuse.

    Who was taken over without knowing judges by what it knew then, and clients take a refusal for
    final.
    """
    doubt = Commit()

    async def decide() -> None:
        try:
            leading = await broker.still_leading()
        except NeveError as error:
            doubt.fail(error)
            return
        fenced = FencedError("another process leads this partition now: look for it, and try again")
        doubt.fail(refusal if leading else fenced)

    broker.server.tasks.start(decide())
    return doubt


def _append_to(broker: Broker, log: PartitionLog, records: memoryview | None, index: int) -> Row:
    if log.is_internal:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{log.name}: only the broker writes to it"
        )
    config = broker.node.config_of(log)
    header = _checked(records, config.max_message_bytes, log.name)
    assert records is not None
    append_time_ms = -1
    if config.log_append_time:
        append_time_ms = runtime.now_ms()
        header = patch_log_append_time(records, append_time_ms)
    else:
        _check_time(header, config, log.name)
    done = log.append(records, header, admitted=True)
    metrics = broker.metrics
    metrics.produce_batches += 1
    metrics.produce_records += header.record_count
    metrics.produce_bytes += len(records)
    return Row(index, done.commit, done.base_offset, append_time_ms, log.start_offset)


def _checked(records: memoryview | None, bytes_max: int, name: str) -> BatchHeader:
    if not records:
        raise InvalidError(f"{name}: there is no batch in the request")
    if len(records) > bytes_max:
        raise RefusedError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{name}: a batch of {len(records)} bytes is over max.message.bytes, {bytes_max}",
        )
    header = check_produced(records)
    if header.attributes & TRANSACTIONAL:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"{name}: {_NO_TRANSACTIONS}"
        )
    if header.size != len(records):
        raise InvalidError(f"{name}: a request carries one batch for a partition, not several")
    return header


def _check_time(header: BatchHeader, config: TopicConfig, name: str) -> None:
    """Refuse what is too far from now, as far as the batch's header tells."""
    if header.max_timestamp < 0:
        return  # a record without a time
    ahead_ms = header.max_timestamp - runtime.now_ms()
    if ahead_ms > config.timestamp_after_max_ms or -ahead_ms > config.timestamp_before_max_ms:
        raise RefusedError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{name}: the time {header.max_timestamp} is further from now than "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
        )
