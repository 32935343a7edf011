"""SyncGroup: the leader sends the assignment, and every member gets its part unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import code_of, group_code
from neve.broker.errors import ProtocolMissingError
from neve.coordinator.group_messages import SyncRequest
from neve.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_PROTOCOL_SINCE = 5


async def handle(broker: Broker, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    names_protocol = None not in (request.protocol_type, request.protocol_name)
    if context.api_version >= _PROTOCOL_SINCE and not names_protocol:
        return SyncGroupResponse(error_code=code_of(ProtocolMissingError))
    reply = await broker.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
    )
    return SyncGroupResponse(
        error_code=group_code(reply.error),
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
