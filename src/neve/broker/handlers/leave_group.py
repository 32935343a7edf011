"""LeaveGroup: members leave at once. Since version 3, many of them, static ones by instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import group_code
from neve.coordinator.group_messages import Identity
from neve.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_MANY_SINCE = 3


def handle(broker: Broker, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    if context.api_version < _MANY_SINCE:
        error, errors = broker.groups.leave(request.group_id, [Identity(request.member_id)])
        return LeaveGroupResponse(error_code=group_code(error or errors[0]))
    leaving = [Identity(each.member_id, each.group_instance_id) for each in request.members]
    error, errors = broker.groups.leave(request.group_id, leaving)
    return LeaveGroupResponse(
        error_code=group_code(error),
        members=[
            LeaveGroupResponse.Member(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                error_code=group_code(refused),
            )
            for identity, refused in zip(
                leaving, errors, strict=False
            )  # on an error there are none
        ],
    )
