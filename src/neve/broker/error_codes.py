"""Kafka's error code for each error of Neve. No other file of the broker names these codes.

What an error means to a client depends on its request: a damaged batch is the producer's mistake in
a produce request, and the broker's in a fetch. So there is one function for each use, over tables
that they share. An error in no table is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from neve.broker.errors import (
    AcksError,
    AssignmentError,
    BatchTooLargeError,
    ControllerEndpointError,
    CoordinatorTypeError,
    DeletedOffsetError,
    EndpointTypeError,
    FencedLeaderEpochError,
    InternalTopicError,
    LeaderNotAvailableError,
    NotAuthorizedError,
    NotLeaderError,
    ProtocolMissingError,
    ReplicationFactorError,
    SessionEpochError,
    SessionNotFoundError,
    SessionTopicIdError,
    TimedOutError,
    TimestampError,
    TransactionsUnsupportedError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
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


# In each table the first row that fits counts, so the more special error comes first.

# What is refused for a reason that is the same in every use; looked up before the other tables.
_REFUSALS: _Table = (
    (NotAuthorizedError, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (UnknownTopicIdError, ErrorCode.UNKNOWN_TOPIC_ID),
    (UnknownPartitionError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (InternalTopicError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (AssignmentError, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (ReplicationFactorError, ErrorCode.INVALID_REPLICATION_FACTOR),
    (LeaderNotAvailableError, ErrorCode.LEADER_NOT_AVAILABLE),
    (NotLeaderError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (FencedLeaderEpochError, ErrorCode.FENCED_LEADER_EPOCH),
    (UnknownLeaderEpochError, ErrorCode.UNKNOWN_LEADER_EPOCH),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (DeletedOffsetError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (ControllerEndpointError, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
    (EndpointTypeError, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    (CoordinatorTypeError, ErrorCode.INVALID_REQUEST),
    (ProtocolMissingError, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (AcksError, ErrorCode.INVALID_REQUIRED_ACKS),
    # A code that ends a producer at once: one that is retried would hang it for ever.
    (TransactionsUnsupportedError, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (TimestampError, ErrorCode.INVALID_TIMESTAMP),
    (SessionNotFoundError, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    (SessionEpochError, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    (SessionTopicIdError, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
)

_ANY_USE: _Table = (
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (NoTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (PartitionCountError, ErrorCode.INVALID_PARTITIONS),
    (InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (FencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    # Whether the write took effect is not known, and that is what a time-out means to clients.
    (TimedOutError, ErrorCode.REQUEST_TIMED_OUT),
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
    # Consumers retry after this code. They do not expect a time-out from a fetch: Java's ends.
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

_COORDINATOR: _Table = ((NeveError, ErrorCode.COORDINATOR_NOT_AVAILABLE),)

# A producer without transactions has no coordinator that it could look for: Java's would ask for
# one without a name. It retries after this code, as with Kafka while no ids are available.
_PRODUCER_ID: _Table = tuple(
    (kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for kind in (
        TimedOutError,
        FencedError,
        ClosedError,
        UnavailableError,
        ConflictError,
        FullError,
    )
)


def code_of(kind: type[NeveError]) -> ErrorCode:
    """The code of a kind of error that means the same in every use."""
    return next(code for each, code in (*_REFUSALS, *_ANY_USE) if issubclass(kind, each))


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


def coordinator_error(error: NeveError) -> tuple[ErrorCode, str]:
    """For requests for a coordinator: the code, and the reason in words."""
    return _found(error, _COORDINATOR)


def producer_id_error(error: NeveError) -> ErrorCode:
    """For requests for a producer id."""
    return _found(error, _PRODUCER_ID)[0]


def _found(error: NeveError, of_this_use: _Table) -> tuple[ErrorCode, str]:
    # Reasons repeat what clients sent, names of any length among it; older versions of an answer
    # have no room for that.
    reason = str(error)[:REASON_LENGTH_MAX]
    for kind, code in (*_REFUSALS, *of_this_use, *_ANY_USE):
        if isinstance(error, kind):
            return code, reason
    return ErrorCode.UNKNOWN_SERVER_ERROR, reason
