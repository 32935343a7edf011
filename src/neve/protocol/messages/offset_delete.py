"""OffsetDelete: delete the committed offsets of a group for some partitions."""

from __future__ import annotations

from neve.protocol.compiler import define

OFFSET_DELETE = define(
    """
    OffsetDelete 47, versions 0, flexible none
    request
      group_id string
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
    response
      error_code int16
      throttle_time_ms int32
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          error_code int16
    """
)
OffsetDeleteRequest = OFFSET_DELETE.Request
OffsetDeleteResponse = OFFSET_DELETE.Response
