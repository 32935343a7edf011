"""FindCoordinator: who answers for a group. This broker, for every group.

The internal topic that groups are kept in is made when somebody first asks. Transactions are not
supported: who asks for their coordinator is refused with the one error that every client takes for
final (others make librdkafka ask again for ever), and a message that says what it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import coordinator_error
from neve.broker.errors import CoordinatorTypeError, TransactionsUnsupportedError
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_GROUP, _TRANSACTION = 0, 1
_MANY_SINCE = 4
_NO_NODE = _NO_PORT = -1


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    code, reason, node_id, host, port = ErrorCode.NONE, None, _NO_NODE, "", _NO_PORT
    try:
        await _check_coordinating(broker, request.key_type)
        node_id, (host, port) = broker.node_id, broker.advertised
    except NeveError as error:
        code, reason = coordinator_error(error)
    if context.api_version < _MANY_SINCE:
        return FindCoordinatorResponse(
            error_code=code, error_message=reason, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                error_code=code,
                error_message=reason,
                node_id=node_id,
                host=host,
                port=port,
            )
            for key in request.coordinator_keys
        ]
    )


async def _check_coordinating(broker: Broker, key_type: int) -> None:
    """Make sure that this broker coordinates groups, and that the client asks for no other kind."""
    if key_type == _TRANSACTION:
        raise TransactionsUnsupportedError(
            "transactions are not supported: produce without a transactional id"
        )
    if key_type != _GROUP:
        raise CoordinatorTypeError(f"there is no coordinator of kind {key_type}")
    if not broker.group_state.is_whole:
        await Changes(broker).make(broker.group_state.ensure)
