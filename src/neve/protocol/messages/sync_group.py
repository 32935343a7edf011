"""SyncGroup: the leader sends the assignment, and each member gets its own part."""

from __future__ import annotations

from neve.protocol.compiler import define

SYNC_GROUP = define(
    """
    SyncGroup 14, versions 0-5, flexible 4+
    request
      group_id string
      generation_id int32
      member_id string
      group_instance_id string 3+ nullable = null
      protocol_type string 5+ nullable = null
      protocol_name string 5+ nullable = null
      assignments []Assignment
        member_id string
        assignment bytes
    response
      throttle_time_ms int32 1+
      error_code int16
      protocol_type string 5+ nullable = null
      protocol_name string 5+ nullable = null
      assignment bytes
    """
)
SyncGroupRequest = SYNC_GROUP.Request
SyncGroupResponse = SYNC_GROUP.Response
