"""Which of Kafka's error codes stands for which error of Neve: the one place that knows.

What an error means to a client depends on what it asked for: a damaged stretch is the producer's
own in a produce request and the broker's in a fetch. So there is one function for each use, over
a table that they share. What is in no table is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from neve.cluster.topic_config import InvalidConfigError
from neve.cluster.topic_rules import (
    NoTopicError,
    PartitionCountError,
    TopicExistsError,
    TopicNameError,
)
from neve.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    DeniedError,
    FencedError,
    FullError,
    InvalidError,
    LostRangeError,
    NeveError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.producers import (
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.protocol.codes import ErrorCode

REASON_LENGTH_MAX = 2_000

_Table = tuple[tuple[type[NeveError], ErrorCode], ...]


class RefusedError(InvalidError):
    """A request, or a part of it, is refused with this very code."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


# The first row that fits counts, so the more special error comes first.
_ANY_USE: _Table = (
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (NoTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (PartitionCountError, ErrorCode.INVALID_PARTITIONS),
    (InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (FencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    # Whether the write took effect is not known, and that is what a time-out means to clients.
    (UnavailableError, ErrorCode.REQUEST_TIMED_OUT),
    (ConflictError, ErrorCode.REQUEST_TIMED_OUT),
    (FullError, ErrorCode.REQUEST_TIMED_OUT),
    (DeniedError, ErrorCode.KAFKA_STORAGE_ERROR),
    (StoreFailedError, ErrorCode.KAFKA_STORAGE_ERROR),
    (NotFoundError, ErrorCode.KAFKA_STORAGE_ERROR),
    (DamagedError, ErrorCode.KAFKA_STORAGE_ERROR),
    (LostRangeError, ErrorCode.KAFKA_STORAGE_ERROR),
    (UnsupportedError, ErrorCode.UNSUPPORTED_VERSION),
    (InvalidError, ErrorCode.INVALID_REQUEST),
)

_PRODUCE: _Table = (
    (OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (DuplicateSequenceError, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
    (ProducerFencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (DamagedError, ErrorCode.CORRUPT_MESSAGE),
    (UnsupportedError, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    # Nothing was appended, and a later attempt may be.
    (FullError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (InvalidError, ErrorCode.INVALID_RECORD),
)

_FETCH: _Table = (
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    # Consumers try again after this one. A time-out is no answer to a fetch for them, and ends
    # Java's.
    (UnavailableError, ErrorCode.KAFKA_STORAGE_ERROR),
    (ConflictError, ErrorCode.KAFKA_STORAGE_ERROR),
    (FullError, ErrorCode.KAFKA_STORAGE_ERROR),
)

_GROUP: _Table = (
    (FencedError, ErrorCode.NOT_COORDINATOR),
    (ClosedError, ErrorCode.NOT_COORDINATOR),
    (UnavailableError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ConflictError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (FullError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)

# A producer without transactions has no coordinator that it could look for: Java's would ask for
# one without a name. It tries again after this one, as with Kafka while no ids are to be had.
_PRODUCER_ID: _Table = tuple(
    (kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for kind in (FencedError, ClosedError, UnavailableError, ConflictError, FullError)
)


def admin_error(error: NeveError) -> tuple[ErrorCode, str]:
    """For requests about topics, configs and offsets: the code, and the reason in words."""
    return _found(error, ())


def produce_error(error: NeveError) -> tuple[ErrorCode, str]:
    """For one partition of a produce request: the code, and the reason in words."""
    return _found(error, _PRODUCE)


def fetch_error(error: NeveError) -> ErrorCode:
    """For one partition of a fetch or of a look-up of offsets."""
    return _found(error, _FETCH)[0]


def group_error(error: NeveError) -> ErrorCode:
    """For requests to a group's coordinator."""
    return _found(error, _GROUP)[0]


def producer_id_error(error: NeveError) -> ErrorCode:
    """For requests for a producer id."""
    return _found(error, _PRODUCER_ID)[0]


def _found(error: NeveError, of_this_use: _Table) -> tuple[ErrorCode, str]:
    # Reasons repeat what clients sent, names of any length among it; older versions of an answer
    # have no room for that.
    reason = str(error)[:REASON_LENGTH_MAX]
    if isinstance(error, RefusedError):
        return error.code, reason
    for kind, code in (*of_this_use, *_ANY_USE):
        if isinstance(error, kind):
            return code, reason
    return ErrorCode.UNKNOWN_SERVER_ERROR, reason
