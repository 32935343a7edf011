"""Heartbeat: a member is alive. The response says whether its group rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import group_code
from neve.coordinator.group_messages import Identity
from neve.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(broker: Broker, request: HeartbeatRequest, _: Context) -> HeartbeatResponse:
    identity = Identity(request.member_id, request.group_instance_id)
    error = broker.groups.heartbeat(request.group_id, identity, request.generation_id)
    return HeartbeatResponse(error_code=group_code(error))
