"""Pull: a broker asks the one that should lead partitions to take them over now."""

from __future__ import annotations

from neve.protocol.compiler import define

PULL = define(
    """
    Pull 30004, versions 0-0, flexible none
    request
      position int64  # the cluster-log number from which the sender knows that
      topics []Topic
        topic_id uuid
        partitions []int32
    response
      error_code int16
      pulled int32  # how many partitions
    """
)
PullRequest = PULL.Request
PullResponse = PULL.Response
