"""UnregisterBroker: forget a broker that has ended and does not come back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import admin_error
from neve.errors import NeveError
from neve.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(
    broker: Broker, request: UnregisterBrokerRequest, context: Context
) -> UnregisterBrokerResponse:
    del context
    try:
        await Changes(broker.changing).make(partial(broker.cluster.forget, request.broker_id))
    except NeveError as error:
        code, reason = admin_error(error)
        return UnregisterBrokerResponse(error_code=code, error_message=reason)
    return UnregisterBrokerResponse(error_message=None)
