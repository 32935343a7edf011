"""Why the broker refuses a request, or a part of one. error_codes.py gives each Kafka's code."""

from __future__ import annotations

from neve.cluster.topic_rules import NoTopicError
from neve.errors import InvalidError, NeveError


class NotAuthorizedError(NeveError):
    """The principal does not have the access that an API needs."""


class TimedOutError(NeveError):
    """A change is not known to be made within the time that its client waits."""


# -- topics and partitions -------------------------------------------------------------------------


class UnknownTopicIdError(NoTopicError):
    """No topic has this id."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(f"there is no topic with the id {topic_id.hex()}")


class UnknownPartitionError(NoTopicError):
    """The topic does not have this partition."""


class InternalTopicError(InvalidError):
    """The topic holds the broker's own state: clients may not use it so."""


class AssignmentError(InvalidError):
    """A manual assignment of partitions to brokers is not complete."""


class ReplicationFactorError(InvalidError):
    """No topic can have this replication factor."""


class LeaderNotAvailableError(NeveError):
    """No broker leads the partition yet."""


class NotLeaderError(NeveError):
    """This broker does not lead the partition."""


class FencedLeaderEpochError(NeveError):
    """The client knows an older leader epoch than the broker."""


class UnknownLeaderEpochError(NeveError):
    """The client knows a newer leader epoch than the broker."""


class DeletedOffsetError(InvalidError):
    """Records cannot be deleted up to an offset that the log does not have."""


# -- cluster ---------------------------------------------------------------------------------------


class ControllerEndpointError(InvalidError):
    """The client asks a broker for controllers."""


class EndpointTypeError(InvalidError):
    """There are no endpoints of this type."""


class CoordinatorTypeError(InvalidError):
    """There is no coordinator of this type."""


class ProtocolMissingError(InvalidError):
    """A member that syncs does not name the protocol of its group."""


# -- producing -------------------------------------------------------------------------------------


class AcksError(InvalidError):
    """A produce request has an unknown value of acks."""


class TransactionsUnsupportedError(InvalidError):
    """A client asks for a transaction."""

    def __init__(self, reason: str = "transactions are not supported") -> None:
        super().__init__(reason)


class BatchTooLargeError(InvalidError):
    """A batch is larger than its topic takes."""


class TimestampError(InvalidError):
    """A batch has times that its topic does not take."""


# -- fetch sessions --------------------------------------------------------------------------------


class SessionError(NeveError):
    """A fetch does not fit its session: the client starts a new one."""


class SessionNotFoundError(SessionError):
    """There is no session of this id, or no longer."""


class SessionEpochError(SessionError):
    """The request is not the next one of its session."""


class SessionTopicIdError(SessionError):
    """The session names topics by id and the request by name, or the other way round."""
