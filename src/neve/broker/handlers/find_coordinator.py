"""FindCoordinator: who answers for a group. This broker, for every group.

The internal topic that groups are kept in is made when somebody first asks. Transactions are not
supported: who asks for their coordinator is refused with the one error that every client takes for
final (others make librdkafka ask again for ever), and a message that says what it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neve.broker.handlers.changes import Changes
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_GROUP, _TRANSACTION = 0, 1
_MANY_SINCE = 4


class _Found(NamedTuple):
    error_code: ErrorCode
    error_message: str | None
    node_id: int = -1
    host: str = ""
    port: int = -1


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    found = await _find(broker, request.key_type)
    if context.api_version >= _MANY_SINCE:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(key=key, **found._asdict()) for key in keys
            ]
        )
    return FindCoordinatorResponse(**found._asdict())


async def _find(broker: Broker, key_type: int) -> _Found:
    if key_type == _TRANSACTION:
        return _Found(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not supported: produce without a transactional id",
        )
    if key_type != _GROUP:
        return _Found(ErrorCode.INVALID_REQUEST, f"there is no coordinator of kind {key_type}")
    try:
        if not broker.group_state.is_whole:
            await Changes(broker).make(broker.group_state.ensure)
    except NeveError as error:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    host, port = broker.advertised
    return _Found(ErrorCode.NONE, None, broker.node_id, host, port)
