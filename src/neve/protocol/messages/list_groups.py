"""ListGroups: the groups that a broker coordinates, optionally filtered by state and type."""

from __future__ import annotations

from neve.protocol.compiler import define

LIST_GROUPS = define(
    """
    ListGroups 16, versions 0-5, flexible 3+
    request
      states_filter []string 4+
      types_filter []string 5+
    response
      throttle_time_ms int32 1+
      error_code int16
      groups []Group
        group_id string
        protocol_type string
        group_state string 4+
        group_type string 5+
    """
)
ListGroupsRequest = LIST_GROUPS.Request
ListGroupsResponse = LIST_GROUPS.Response
