"""Ping: a broker shows that it is alive, and both sides how far they have read the cluster log.

The answer also says which deleted topics the answering process cannot write to any more.
"""

from __future__ import annotations

from neve.protocol.compiler import define

PING = define(
    """
    Ping 30000, versions 0-0, flexible none
    request
      position int64  # the cluster-log number that the sender has read up to
      watches bool  # whether the sender watches the target
      hears bool  # whether the sender got the answer to its last ping
    response
      error_code int16
      position int64
      dropped int64  # all topics that were deleted below this number are dropped
    """
)
PingRequest = PING.Request
PingResponse = PING.Response
