"""Heartbeat: a member is alive, and hears whether its group rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.coordinator.group_messages import Identity
from neve.protocol.messages.heartbeat import HEARTBEAT

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = HEARTBEAT.Response


def handle(broker: Broker, request: Any, _: Context) -> Any:
    identity = Identity(request.member_id, request.group_instance_id)
    error = broker.groups.heartbeat(request.group_id, identity, request.generation_id)
    return _Response(error_code=error)
