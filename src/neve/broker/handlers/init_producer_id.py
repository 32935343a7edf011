"""InitProducerId: a new id for an idempotent producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import producer_id_error
from neve.broker.errors import TransactionsUnsupportedError
from neve.errors import InvalidError, NeveError
from neve.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_NONE = -1


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    """Return a new id with epoch 0, also to a producer that had one: its sequences start at 0."""
    del context
    try:
        _check(request)
        producer_id = await Changes(broker.changing).make(broker.cluster.new_producer_id)
    except NeveError as error:
        return InitProducerIdResponse(
            error_code=producer_id_error(error), producer_id=_NONE, producer_epoch=_NONE
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(request: InitProducerIdRequest) -> None:
    if request.transactional_id == "":
        raise InvalidError("a transactional id must not be empty")
    if request.transactional_id is not None:
        raise TransactionsUnsupportedError
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise InvalidError("producer id and producer epoch must both be given, or both be -1")
