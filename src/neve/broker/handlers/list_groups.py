"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import group_code
from neve.coordinator.groups import GROUP_TYPE
from neve.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(broker: Broker, request: ListGroupsRequest, _: Context) -> ListGroupsResponse:
    error, groups = broker.groups.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(
        error_code=group_code(error),
        groups=[
            ListGroupsResponse.Group(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=GROUP_TYPE,
            )
            for each in groups
        ],
    )
