"""LeaveGroup: members leave at once instead of by time-out.

Since version 3, one request can remove many members, and static ones by their instance id.
"""

from __future__ import annotations

from neve.protocol.compiler import define

LEAVE_GROUP = define(
    """
    LeaveGroup 13, versions 0-5, flexible 4+
    request
      group_id string
      member_id string 0-2
      members []Member 3+
        member_id string
        group_instance_id string nullable = null
        reason string 5+ nullable = null
    response
      throttle_time_ms int32 1+
      error_code int16
      members []Member 3+
        member_id string
        group_instance_id string nullable
        error_code int16
    """
)
LeaveGroupRequest = LEAVE_GROUP.Request
LeaveGroupResponse = LEAVE_GROUP.Response
