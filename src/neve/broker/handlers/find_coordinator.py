"""FindCoordinator: the broker that leads a group's partition of the internal topic.

The internal topic is created when the first client asks. Transactions are not supported. A request
for their coordinator gets the one error that every client treats as final (after others librdkafka
asks again for ever), with a message that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import NO_ERROR, coordinator_error
from neve.broker.errors import CoordinatorTypeError, TransactionsUnsupportedError
from neve.errors import NeveError
from neve.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_GROUP, _TRANSACTION = 0, 1
_MANY_SINCE = 4


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
    """Raise an error unless the client asks for a group's coordinator and groups are kept."""
    if key_type == _TRANSACTION:
        raise TransactionsUnsupportedError(
            "transactions are not supported: produce without a transactional id"
        )
    if key_type != _GROUP:
        raise CoordinatorTypeError(f"there is no coordinator of kind {key_type}")
    if not broker.offsets_topic.is_loaded:
        await Changes(broker).make(broker.offsets_topic.ensure)


def _coordinator(broker: Broker, group_id: str) -> _Found:
    """The broker that coordinates a group.

    This broker if no process leads the group's partition, or one that serves no clients: requests
    are then answered NOT_COORDINATOR, and clients ask again.
    """
    leader = broker.offsets_topic.coordinator_of(group_id)
    other = None if leader is None else broker.node.cluster.state.brokers.get(leader)
    if other is None or other.incarnation == broker.node.incarnation or not other.port:
        return _Found(NO_ERROR, None, broker.node_id, *broker.advertised)
    return _Found(NO_ERROR, None, other.node_id, other.host, other.port)
