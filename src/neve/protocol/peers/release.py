"""Release: a broker asks the leader of partitions to hand their leadership over to it."""

from __future__ import annotations

from neve.protocol.compiler import define

RELEASE = define(
    """
    Release 30002, versions 0-0, flexible none
    request
      topics []Topic
        topic_id uuid
        partitions []int32
    response
      error_code int16
      released int32  # how many partitions
      position int64
    """
)
ReleaseRequest = RELEASE.Request
ReleaseResponse = RELEASE.Response
