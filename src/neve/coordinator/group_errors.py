"""Why the coordinator refuses a request about a group or its offsets.

Refusals are ordinary results: requests return them, with None for success. The broker maps them to
Kafka's codes in broker/error_codes.py.
"""

from __future__ import annotations

from enum import Enum

from neve.errors import ClosedError, FencedError, NeveError


class GroupError(Enum):
    """The reason of a refusal."""

    # The coordinator. Clients retry, after NOT_COORDINATOR at another broker.
    NOT_COORDINATOR = "another process coordinates the group"
    LOADING = "the groups of the partition are being loaded"
    UNAVAILABLE = "the group is being deleted, or its record could not be committed"
    TIMED_OUT = "the store does not answer in time; the change may still be committed"

    # Members.
    UNKNOWN_MEMBER = "the group has no such member"
    MEMBER_ID_REQUIRED = "the client must join again with the member id that it was sent"
    FENCED_INSTANCE = "another member has taken over the instance id"
    ILLEGAL_GENERATION = "the generation is not the group's current one"
    REBALANCE_IN_PROGRESS = "the group is rebalancing: join again"
    INCONSISTENT_PROTOCOL = "the group does not use this protocol"
    INVALID_SESSION_TIMEOUT = "the session time-out is outside the configured bounds"
    NAME_TOO_LONG = "a member id, an instance id or the name of a protocol is too long"
    ASSIGNMENT_TOO_LARGE = "the assignment does not fit into the memory that the group may use"
    GROUP_FULL = "the group has its maximum of members or of metadata"
    TOO_MANY_GROUPS = "the coordinator holds its maximum of groups"

    # Groups by name.
    INVALID_GROUP_ID = "the group id is empty or too long"
    GROUP_NOT_FOUND = "the group does not exist"
    GROUP_NOT_EMPTY = "the group has members"

    # Offsets of one partition.
    UNKNOWN_PARTITION = "the topic or partition does not exist"
    METADATA_TOO_LARGE = "the metadata of the offset is too large"
    NEGATIVE_OFFSET = "the offset is negative"
    OFFSETS_FULL = "committed offsets of all groups use all memory that is configured for them"
    SUBSCRIBED_TO_TOPIC = "members of the group read the topic"


def group_error_for(error: NeveError) -> GroupError:
    """Return the refusal of a request whose record was not committed. Clients retry after it."""
    if isinstance(error, FencedError | ClosedError):
        return GroupError.NOT_COORDINATOR
    return GroupError.UNAVAILABLE
