"""Handle Produce requests: check each batch and append it to its partition's log.

This is a plain call, without a task, a future or a copy of the records. A batch is checked
completely before it is appended. An invalid batch does not affect those of other partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve.broker.error_codes import code_of, produce_error
from neve.broker.errors import (
    AcksError,
    BatchTooLargeError,
    InternalTopicError,
    NotLeaderError,
    TimestampError,
    TransactionsUnsupportedError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from neve.broker.invalid_records import InvalidTimesError
from neve.broker.produce_response import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    TOPIC_IDS_SINCE,
    BatchOutcome,
    PendingProduce,
    TopicName,
)
from neve.errors import FencedError, InvalidError, NeveError
from neve.log.producers import OutOfOrderSequenceError, ProducerFencedError
from neve.log.wal.pending import Commit
from neve.protocol.frames import RequestHeader
from neve.protocol.messages.produce import ProduceRequest
from neve.records.batch import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    check_produced,
    patch_log_append_time,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.partition_leader import PartitionLeader
    from neve.cluster.state import Topic
    from neve.cluster.topic_config import TopicConfig

# Clients refresh their metadata after these errors, so they get no message.
_UNKNOWN = code_of(UnknownPartitionError)
_UNKNOWN_ID = code_of(UnknownTopicIdError)
_NOT_LEADER = code_of(NotLeaderError)

Refusals: TypeAlias = Mapping[int, NeveError]
"""Errors of single partitions of a request, by the `id` of their part of the request."""


class ReceiveTime(NamedTuple):
    """When requests were received. Those of one read share it: reading the clocks adds up."""

    monotonic: float
    wall_ms: int


def produce(
    broker: Broker,
    request: ProduceRequest,
    header: RequestHeader,
    received: ReceiveTime,
    refused: Refusals | None = None,
) -> PendingProduce:
    """Append the valid batches of a request, except partitions in `refused`.

    The bytes of the request are patched in place. Returns the response, to be sent when its
    batches are committed.
    """
    acks = request.acks
    by_id = header.api_version >= TOPIC_IDS_SINCE
    state = broker.node.cluster.state
    rows: list[tuple[TopicName, list[BatchOutcome]]] = []
    refusal: NeveError | None = None
    if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        refusal = AcksError(f"acks={acks}: use 0, 1 or -1 (all)")
    elif request.transactional_id is not None:
        refusal = TransactionsUnsupportedError()
    for requested in request.topic_data:
        named = TopicName(requested.name, requested.topic_id)
        parts = requested.partition_data
        if refusal is not None:
            rows.append((named, [_refused(part.index, refusal) for part in parts]))
            continue
        topic = state.topic_by_id(named.topic_id) if by_id else state.topic(named.name)
        appended = [
            _append(broker, topic, part, by_id, received.wall_ms)
            if not refused or id(part) not in refused
            else _refused(part.index, refused[id(part)])
            for part in parts
        ]
        rows.append((named, appended))
    return PendingProduce(header, request, rows, received.monotonic, broker.cluster)


def _refused(index: int, error: NeveError) -> BatchOutcome:
    code, message = produce_error(error)
    return BatchOutcome(index, None, error=code, message=message)


def _append(
    broker: Broker, topic: Topic | None, part: ProduceRequest.Partition, by_id: bool, now_ms: int
) -> BatchOutcome:
    index = part.index
    if topic is None:
        return BatchOutcome(index, None, error=_UNKNOWN_ID if by_id else _UNKNOWN)
    leader = broker.node.leader_of(topic.id_bytes, index)
    if leader is None:
        known = 0 <= index < len(topic.partitions)
        return BatchOutcome(index, None, error=_NOT_LEADER if known else _UNKNOWN)
    try:
        return _append_to(broker, leader, part.records, index, now_ms)
    except (OutOfOrderSequenceError, ProducerFencedError) as error:
        return BatchOutcome(index, _doubted(broker, leader, error), in_doubt=True)
    except InvalidTimesError as error:
        assert part.records is not None
        explained = _explained(broker, error, part.records)
        return BatchOutcome(index, explained, error=produce_error(error)[0], in_doubt=True)
    except NeveError as error:
        return _refused(index, error)


def _doubted(broker: Broker, leader: PartitionLeader, refusal: NeveError) -> Commit:
    """A commit that fails with `refusal` if this process still leads, else with FencedError.

    A deposed leader may refuse from stale state, and clients treat the refusal as final.
    """
    doubt = Commit()

    async def decide() -> None:
        try:
            leading = await broker.still_leading() and leader.is_leading
        except NeveError as error:
            doubt.fail(error)
            return
        fenced = FencedError(
            "another process leads this partition now: refresh the metadata, and try again"
        )
        doubt.fail(refusal if leading else fenced)

    broker.server.tasks.start(decide())
    return doubt


def _explained(broker: Broker, refusal: InvalidTimesError, records: memoryview) -> Commit:
    """Return a commit that fails with `refusal` once the invalid records are known.

    Until then the batch counts in the WAL buffer.
    """
    decision = Commit()
    writer, size = broker.node.writer, len(records)
    writer.reserve(size)

    async def explain() -> None:
        try:
            await broker.server.unpacking.offload(refusal.search, records)
        finally:
            writer.unreserve(size)
            decision.fail(refusal)

    broker.server.tasks.start(explain())
    return decision


def _append_to(
    broker: Broker, leader: PartitionLeader, records: memoryview | None, index: int, now_ms: int
) -> BatchOutcome:
    log = leader.log
    if log.is_internal:
        raise InternalTopicError(f"{log.name}: clients cannot produce to an internal topic")
    config = leader.config
    header = checked_batch(records, config.max_message_bytes, log.name)
    assert records is not None
    append_time_ms = -1
    if config.log_append_time:
        append_time_ms = now_ms
        header = patch_log_append_time(records, append_time_ms)
    else:
        _check_time(header, config, log.name, now_ms)
    done = log.append(records, header, admitted=True)
    metrics = broker.metrics
    metrics.produce_batches += 1
    metrics.produce_records += header.record_count
    metrics.produce_bytes += len(records)
    return BatchOutcome(index, done.commit, done.base_offset, append_time_ms, log.start_offset)


def checked_batch(records: memoryview | None, bytes_max: int, name: str) -> BatchHeader:
    """Return the header of a partition's batch. Raises NeveError if the batch is invalid."""
    if not records:
        raise InvalidError(f"{name}: the request has no batch for it")
    if len(records) > bytes_max:
        raise BatchTooLargeError(
            f"{name}: a batch of {len(records)} bytes is over max.message.bytes, {bytes_max}"
        )
    header = check_produced(records)
    if header.attributes & TRANSACTIONAL:
        raise TransactionsUnsupportedError(f"{name}: transactions are not supported")
    if header.attributes & LOG_APPEND_TIME:
        raise TimestampError(f"{name}: a producer may not set log append times")
    if header.size != len(records):
        raise InvalidError(f"{name}: a request may have only one batch per partition")
    return header


def _check_time(header: BatchHeader, config: TopicConfig, name: str, now_ms: int) -> None:
    """Raise InvalidTimesError if the newest time in the batch's header is too far from now."""
    if header.max_timestamp < 0:
        return  # the records have no times
    ahead_ms = header.max_timestamp - now_ms
    before_ms, after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
    if ahead_ms > after_ms or -ahead_ms > before_ms:
        raise InvalidTimesError(name, header, now_ms - before_ms, now_ms + after_ms)
