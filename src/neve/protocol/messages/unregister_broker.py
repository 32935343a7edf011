"""UnregisterBroker: forget a broker that has ended and does not come back."""

from __future__ import annotations

from neve.protocol.compiler import define

UNREGISTER_BROKER = define(
    """
    UnregisterBroker 64, versions 0, flexible 0+
    request
      broker_id int32
    response
      throttle_time_ms int32
      error_code int16
      error_message string nullable
    """
)
UnregisterBrokerRequest = UNREGISTER_BROKER.Request
UnregisterBrokerResponse = UNREGISTER_BROKER.Response
