"""InitProducerId: an id under which an idempotent producer numbers its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import producer_id_error
from neve.broker.handlers.changes import Changes, TimedOutError
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_NONE = -1


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    """Give a fresh id under epoch 0, also to a producer that had one: its sequences start anew."""
    del context
    code = _refusal(request)
    if code is not ErrorCode.NONE:
        return _failed(code)
    try:
        producer_id = await Changes(broker).make(broker.node.producer_id)
    except TimedOutError:
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except NeveError as error:
        return _failed(producer_id_error(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        # A code that ends a producer at once: one that is retried would hang it for ever.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
