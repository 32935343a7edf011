"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.coordinator.groups import GROUP_TYPE
from neve.protocol.messages.list_groups import LIST_GROUPS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = LIST_GROUPS.Response


def handle(broker: Broker, request: Any, _: Context) -> Any:
    error, groups = broker.groups.list_groups(request.states_filter, request.types_filter)
    return _Response(
        error_code=error,
        groups=[
            _Response.Group(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=GROUP_TYPE,
            )
            for each in groups
        ],
    )
