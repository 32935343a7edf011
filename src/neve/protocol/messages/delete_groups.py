"""DeleteGroups: delete groups without members, with their offsets."""

from __future__ import annotations

from neve.protocol.compiler import define

DELETE_GROUPS = define(
    """
    DeleteGroups 42, versions 0-2, flexible 2+
    request
      groups_names []string
    response
      throttle_time_ms int32
      results []Result
        group_id string
        error_code int16
    """
)
DeleteGroupsRequest = DELETE_GROUPS.Request
DeleteGroupsResponse = DELETE_GROUPS.Response
