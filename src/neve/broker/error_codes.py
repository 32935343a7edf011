"""Kafka's error code for each error of Neve. No other file names these codes to clients.

The code depends on the request: a damaged batch is the producer's mistake in a produce request, and
the broker's in a fetch. So each kind of request has a function, and the functions share tables. An
error that is in no table becomes UNKNOWN_SERVER_ERROR. errors.py has the broker's own errors.
"""

from __future__ import annotations

from neve.broker.errors import (
    AcksError,
    BatchTooLargeError,
    ControllerEndpointError,
    CoordinatorTypeError,
    DeletedOffsetError,
    ElectionNotNeededError,
    EligibleLeadersUnavailableError,
    EndpointTypeError,
    FencedLeaderEpochError,
    FetchSessionEpochError,
    FetchSessionNotFoundError,
    FetchSessionTopicIdError,
    InternalTopicError,
    LeaderNotAvailableError,
    NoCoordinatorError,
    NoReassignmentError,
    NotAuthorizedError,
    NotLeaderError,
    OtherBrokerError,
    PreferredLeaderUnavailableError,
    ProtocolMissingError,
    ReplicationFactorError,
    TimedOutError,
    TimestampError,
    TransactionsUnsupportedError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from neve.cluster.log import NoNodeError
from neve.cluster.log_view import NewerClusterError
from neve.cluster.peer_auth import PeerAuthenticationError
from neve.cluster.topic_config import InvalidConfigError
from neve.cluster.topic_rules import (
    AssignmentError,
    NoTopicError,
    PartitionCountError,
    TopicExistsError,
    TopicNameError,
)
from neve.coordinator.group_errors import GroupError
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

MESSAGE_LENGTH_MAX = 2_000

_Table = tuple[tuple[type[NeveError], ErrorCode], ...]


# In each table the first row that matches counts, so subclasses come before their base class.

# The broker's own errors, which mean the same in every request. Looked up before the other tables.
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
    (OtherBrokerError, ErrorCode.STALE_BROKER_EPOCH),
    # This broker has to stop: clients find the others.
    (NewerClusterError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (PeerAuthenticationError, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (ControllerEndpointError, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
    (EndpointTypeError, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    (NoNodeError, ErrorCode.BROKER_ID_NOT_REGISTERED),
    (NoReassignmentError, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    (ElectionNotNeededError, ErrorCode.ELECTION_NOT_NEEDED),
    (PreferredLeaderUnavailableError, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    (EligibleLeadersUnavailableError, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    (NoCoordinatorError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (CoordinatorTypeError, ErrorCode.INVALID_REQUEST),
    (ProtocolMissingError, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (AcksError, ErrorCode.INVALID_REQUIRED_ACKS),
    # Ends a producer at once. With a retriable code it would retry for ever.
    (TransactionsUnsupportedError, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (TimestampError, ErrorCode.INVALID_TIMESTAMP),
    (FetchSessionNotFoundError, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    (FetchSessionEpochError, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    (FetchSessionTopicIdError, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
)

_ANY_REQUEST: _Table = (
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (NoTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (PartitionCountError, ErrorCode.INVALID_PARTITIONS),
    (InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (FencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    # It is not known whether the write took effect: what a time-out means to clients.
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
    # Nothing was appended, and a retry may succeed.
    (FullError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (InvalidError, ErrorCode.INVALID_RECORD),
)

_FETCH: _Table = (
    # Consumers retry after this code. The Java consumer fails on a time-out from a fetch.
    (UnavailableError, ErrorCode.KAFKA_STORAGE_ERROR),
    (ConflictError, ErrorCode.KAFKA_STORAGE_ERROR),
    (FullError, ErrorCode.KAFKA_STORAGE_ERROR),
)

_COORDINATOR: _Table = ((NeveError, ErrorCode.COORDINATOR_NOT_AVAILABLE),)

# A producer without transactions has no coordinator to look for: the Java producer would ask for
# one without a name. It retries after this code, as it does while Kafka has no ids available.
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

_GROUP: dict[GroupError | None, ErrorCode] = {
    None: ErrorCode.NONE,
    GroupError.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
    GroupError.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    GroupError.UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    GroupError.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    GroupError.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupError.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    GroupError.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    GroupError.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    GroupError.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupError.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    GroupError.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    GroupError.NAME_TOO_LONG: ErrorCode.INVALID_REQUEST,
    GroupError.ASSIGNMENT_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    GroupError.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    GroupError.TOO_MANY_GROUPS: ErrorCode.POLICY_VIOLATION,
    GroupError.INVALID_GROUP_ID: ErrorCode.INVALID_GROUP_ID,
    GroupError.GROUP_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    GroupError.GROUP_NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    GroupError.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    GroupError.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    GroupError.NEGATIVE_OFFSET: ErrorCode.OFFSET_OUT_OF_RANGE,
    # Kafka's code for a commit that is too large for its log: clients do not send it again.
    GroupError.OFFSETS_FULL: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    GroupError.SUBSCRIBED_TO_TOPIC: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
}

_JOIN = {**_GROUP, GroupError.TOO_MANY_GROUPS: ErrorCode.GROUP_MAX_SIZE_REACHED}

# Of the codes for errors that pass, the one after which every client repeats the request, and at
# the same coordinator.
_OFFSET_FETCH = {**_GROUP, GroupError.TIMED_OUT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

NO_ERROR = ErrorCode.NONE
LEADER_CHANGED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""The codes after which a response names the current leader of the partition."""
_NAMES = {int(code): code.name for code in ErrorCode}


def code_of(kind: type[NeveError]) -> ErrorCode:
    """Return the code of an error class that has the same code in every request."""
    return next(code for each, code in (*_REFUSALS, *_ANY_REQUEST) if issubclass(kind, each))


def admin_error(error: NeveError) -> tuple[ErrorCode, str]:
    """Return code and message for requests about topics, configs and offsets."""
    return _found(error, ())


def produce_error(error: NeveError) -> tuple[ErrorCode, str]:
    """Return code and message for one partition of a produce request."""
    return _found(error, _PRODUCE)


def fetch_error(error: NeveError) -> ErrorCode:
    """Return the code for one partition of a Fetch or ListOffsets request."""
    return _found(error, _FETCH)[0]


def group_code(error: GroupError | None) -> ErrorCode:
    """Return the code for requests to a group's coordinator, except the two below."""
    return _GROUP[error]


def join_code(error: GroupError | None) -> ErrorCode:
    """Return the code for JoinGroup."""
    return _JOIN[error]


def offset_fetch_code(error: GroupError | None) -> ErrorCode:
    """Return the code for OffsetFetch."""
    return _OFFSET_FETCH[error]


def coordinator_error(error: NeveError) -> tuple[ErrorCode, str]:
    """Return code and message for FindCoordinator."""
    return _found(error, _COORDINATOR)


def producer_id_error(error: NeveError) -> ErrorCode:
    """Return the code for InitProducerId."""
    return _found(error, _PRODUCER_ID)[0]


def error_name(code: int) -> str:
    """Return Kafka's name of a code, or the number if Kafka has no such code."""
    return _NAMES.get(code, str(code))


def _found(error: NeveError, for_request: _Table) -> tuple[ErrorCode, str]:
    # Messages repeat names of any length that clients sent. Older versions of a response have
    # little room for a message.
    message = str(error)[:MESSAGE_LENGTH_MAX]
    for kind, code in (*_REFUSALS, *for_request, *_ANY_REQUEST):
        if isinstance(error, kind):
            return code, message
    return ErrorCode.UNKNOWN_SERVER_ERROR, message
