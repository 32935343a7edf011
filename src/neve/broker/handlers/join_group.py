"""JoinGroup: a member joins the next generation of its group, and waits until it is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import join_code
from neve.coordinator.group_messages import JoinRequest
from neve.coordinator.groups import CLIENT_ID_CHARACTERS_MAX
from neve.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_REBALANCE_TIMEOUT_SINCE = 1
_ID_ROUND_TRIP_SINCE = 4
_NULL_PROTOCOL_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


async def handle(broker: Broker, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    version = context.api_version
    own_timeout = version >= _REBALANCE_TIMEOUT_SINCE
    reply = await broker.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=(context.client_id or "")[:CLIENT_ID_CHARACTERS_MAX],
            client_host="/" + context.client.host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if own_timeout else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            id_round_trip=version >= _ID_ROUND_TRIP_SINCE,
            knows_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
        )
    )
    name = reply.protocol_name
    return JoinGroupResponse(
        error_code=join_code(reply.error),
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name="" if name is None and version < _NULL_PROTOCOL_SINCE else name,
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata,
            )
            for each in reply.members
        ],
    )
