"""FindCoordinator: the broker that leads a group's partition of the internal topic.

The internal topic is created when the first client asks. While no broker leads the partition, a
client gets COORDINATOR_NOT_AVAILABLE and asks again. Transactions are not supported: a request
for their coordinator gets the only error that every client treats as final. After other errors
librdkafka asks again for ever.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import NO_ERROR, coordinator_error
from neve.broker.errors import (
    CoordinatorTypeError,
    NoCoordinatorError,
    TransactionsUnsupportedError,
)
from neve.errors import NeveError
from neve.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_MANY_SINCE = 4


class _CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class _Found(NamedTuple):
    error_code: int = NO_ERROR
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    has_many = context.api_version >= _MANY_SINCE
    keys = request.coordinator_keys if has_many else [request.key]
    try:
        await _check_coordinating(broker, request.key_type)
        found = [_coordinator(broker, key) for key in keys]
    except NeveError as error:
        found = [_Found(*coordinator_error(error)) for _ in keys]
    if not has_many:
        return FindCoordinatorResponse(**found[0]._asdict())
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(key=key, **row._asdict())
            for key, row in zip(keys, found, strict=True)
        ]
    )


async def _check_coordinating(broker: Broker, key_type: int) -> None:
    """Raise an error unless the client asks for the coordinator of groups. Load groups first."""
    if key_type == _CoordinatorType.TRANSACTION:
        raise TransactionsUnsupportedError(
            "transactions are not supported: produce without a transactional id"
        )
    if key_type != _CoordinatorType.GROUP:
        raise CoordinatorTypeError(
            f"coordinator type {key_type} does not exist: ask for {_CoordinatorType.GROUP} (group)"
        )
    if not broker.offsets_topic.is_loaded:
        await Changes(broker.changing).make(broker.offsets_topic.ensure)


def _coordinator(broker: Broker, group_id: str) -> _Found:
    place = broker.offsets_topic.partition_of(group_id)
    leader = None if place is None else broker.cluster.current_leader(*place)
    if leader is None:
        missing = "no broker leads the group's partition of the internal topic now: ask again"
        return _Found(*coordinator_error(NoCoordinatorError(missing)))
    node_id, host, port, _ = leader.broker
    return _Found(NO_ERROR, None, node_id, host, port)
