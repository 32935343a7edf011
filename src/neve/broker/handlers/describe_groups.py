"""DescribeGroups: the state and the members of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.access import GROUP_OPERATIONS, authorized_operations
from neve.broker.error_codes import group_code
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import GroupState
from neve.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_NOT_FOUND_SINCE = 6


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    bits = authorized_operations(request.include_authorized_operations, GROUP_OPERATIONS)
    # Describe a group once even if it is named repeatedly, because a description may be large.
    wanted = dict.fromkeys(request.groups)
    rows = [_row(broker, group_id, context.api_version, bits) for group_id in wanted]
    return DescribeGroupsResponse(groups=rows)


def _row(broker: Broker, group_id: str, version: int, bits: int) -> DescribeGroupsResponse.Group:
    error, shown = broker.groups.describe(group_id)
    is_missing = error is GroupError.GROUP_NOT_FOUND
    if is_missing and version < _NOT_FOUND_SINCE:
        error = None  # earlier versions describe a group that does not exist as dead
    return DescribeGroupsResponse.Group(
        error_code=group_code(error),
        error_message=f"there is no group {group_id!r}" if is_missing else None,
        group_id=group_id,
        group_state=shown.state if is_missing or shown.state is not GroupState.DEAD else "",
        protocol_type=shown.protocol_type,
        protocol_data=shown.protocol_name,
        members=[
            DescribeGroupsResponse.Member(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.subscription,
                member_assignment=each.assignment,
            )
            for each in shown.members
        ],
        authorized_operations=bits,
    )
