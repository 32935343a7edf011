"""The errors with which the broker refuses a request, or a part of one.

They know nothing of Kafka's messages: error_codes.py maps each to a code.
"""

from __future__ import annotations

from neve.cluster.topic_rules import NoTopicError
from neve.errors import InvalidError, NeveError


class NotAuthorizedError(NeveError):
    """The principal does not have the access that an API needs."""


class TimedOutError(NeveError):
    """A change was not confirmed within the time that its client waits."""


# -- topics and partitions -------------------------------------------------------------------------


class UnknownTopicIdError(NoTopicError):
    """No topic has this id."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"there is no topic with the id {topic_id.hex()}")


class UnknownPartitionError(NoTopicError):
    """The topic does not have this partition."""


class InternalTopicError(InvalidError):
    """The topic holds the broker's own state: clients may not change it."""


class ReplicationFactorError(InvalidError):
    """The replication factor is not supported."""


class LeaderNotAvailableError(NeveError):
    """No broker leads the partition yet."""


class NotLeaderError(NeveError):
    """This broker does not lead the partition."""


class FencedLeaderEpochError(NeveError):
    """The client knows an older leader epoch than the broker."""


class UnknownLeaderEpochError(NeveError):
    """The client knows a newer leader epoch than the broker."""


class DeletedOffsetError(InvalidError):
    """Records cannot be deleted up to an offset outside the log."""


# -- cluster ---------------------------------------------------------------------------------------


class OtherBrokerError(NeveError):
    """A broker's message is meant for another broker, or for an earlier process of this one."""


class ControllerEndpointError(InvalidError):
    """The client asks a broker for controller endpoints."""


class EndpointTypeError(InvalidError):
    """The endpoint type is unknown."""


class NoReassignmentError(InvalidError):
    """A reassignment is cancelled that does not exist."""


class ElectionNotNeededError(NeveError):
    """The broker that should lead the partition leads it."""


class PreferredLeaderUnavailableError(NeveError):
    """The broker that should lead the partition cannot take it now."""


class EligibleLeadersUnavailableError(NeveError):
    """No broker can lead the partition."""


class ElectionTypeError(InvalidError):
    """The type of election is unknown."""


class NoCoordinatorError(NeveError):
    """No broker that clients can reach leads the group's partition of the internal topic."""


class CoordinatorTypeError(InvalidError):
    """The coordinator type is unknown."""


class ProtocolMissingError(InvalidError):
    """A SyncGroup request does not name the protocol of its group."""


# -- producing -------------------------------------------------------------------------------------


class AcksError(InvalidError):
    """A produce request has an unknown value of acks."""


class TransactionsUnsupportedError(InvalidError):
    """A client asks for a transaction."""

    def __init__(self, reason: str = "transactions are not supported") -> None:
        super().__init__(reason)


class BatchTooLargeError(InvalidError):
    """A batch is larger than its topic allows."""


class TimestampError(InvalidError):
    """A batch has timestamps that its topic does not allow."""


# -- fetch sessions --------------------------------------------------------------------------------


class FetchSessionError(NeveError):
    """A fetch does not match its session: the client must start a new one."""


class FetchSessionNotFoundError(FetchSessionError):
    """The session does not exist, or was evicted."""


class FetchSessionEpochError(FetchSessionError):
    """The request is not the next one of its session."""


class FetchSessionTopicIdError(FetchSessionError):
    """The session names topics by id and the request by name, or the other way round."""
