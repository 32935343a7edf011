"""FindCoordinator: the broker that coordinates a group or a transactional id.

Since version 4, one request can ask for many keys.
"""

from __future__ import annotations

from neve.protocol.compiler import define

FIND_COORDINATOR = define(
    """
    FindCoordinator 10, versions 0-6, flexible 3+
    request
      key string 0-3
      key_type int8 1+
      coordinator_keys []string 4+
    response
      throttle_time_ms int32 1+
      error_code int16 0-3
      error_message string 1-3 nullable
      node_id int32 0-3
      host string 0-3
      port int32 0-3
      coordinators []Coordinator 4+
        key string
        node_id int32
        host string
        port int32
        error_code int16
        error_message string nullable
    """
)
FindCoordinatorRequest = FIND_COORDINATOR.Request
FindCoordinatorResponse = FIND_COORDINATOR.Response
