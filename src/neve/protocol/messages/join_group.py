"""JoinGroup: a consumer asks to become a member. The response follows with its generation."""

from __future__ import annotations

from neve.protocol.compiler import define

JOIN_GROUP = define(
    """
    JoinGroup 11, versions 0-9, flexible 6+
    request
      group_id string
      session_timeout_ms int32
      rebalance_timeout_ms int32 1+ = -1
      member_id string
      group_instance_id string 5+ nullable = null
      protocol_type string
      protocols []Protocol
        name string
        metadata bytes
      reason string 8+ nullable = null
    response
      throttle_time_ms int32 2+
      error_code int16
      generation_id int32 = -1
      protocol_type string 7+ nullable = null
      protocol_name string nullable 7+
      leader string
      skip_assignment bool 9+
      member_id string
      members []Member
        member_id string
        group_instance_id string 5+ nullable = null
        metadata bytes
    """
)
JoinGroupRequest = JOIN_GROUP.Request
JoinGroupResponse = JOIN_GROUP.Response
