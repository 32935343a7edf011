"""Operations, resources and principals, and the check that a principal may call an API.

The numbers are those of Kafka's access control lists. Every listener is open: its clients are all
ANONYMOUS, a super user.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.errors import NotAuthorizedError

if TYPE_CHECKING:
    from neve.broker.router import Route


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


class RequiredAccess(NamedTuple):
    """An operation on a kind of resource: what a client needs to be allowed to call an API."""

    operation: Operation
    resource: Resource


class Principal(NamedTuple):
    """The identity under which a connection acts."""

    name: str
    is_super_user: bool = False


ANONYMOUS = Principal("User:ANONYMOUS", is_super_user=True)


def authorize(route: Route, principal: Principal) -> None:
    """Raise NotAuthorizedError unless the principal has the access that the route declares."""
    if principal.is_super_user or route.required_access is None:
        return
    operation, resource = route.required_access
    raise NotAuthorizedError(
        f"{principal.name} may not call {route.api.name}: it needs {operation.name} on "
        f"{resource.name}, which only super users have"
    )


# -- authorized operations, as bits, which clients may ask for beside a description ----------------

NOT_ASKED_FOR = -(2**31)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)


def authorized_operations(asked_for: bool, operations: int) -> int:
    """Return the bits if the client asks for them, else Kafka's value for "not requested"."""
    return operations if asked_for else NOT_ASKED_FOR
