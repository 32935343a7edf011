"""Heartbeat: a member is alive. The response says whether its group rebalances."""

from __future__ import annotations

from neve.protocol.compiler import define

HEARTBEAT = define(
    """
    Heartbeat 12, versions 0-4, flexible 4+
    request
      group_id string
      generation_id int32
      member_id string
      group_instance_id string 3+ nullable = null
    response
      throttle_time_ms int32 1+
      error_code int16
    """
)
HeartbeatRequest = HEARTBEAT.Request
HeartbeatResponse = HEARTBEAT.Response
