"""OffsetFetch: the committed offsets of groups.

Since version 8, one request can ask for many groups; since version 10, topics are named by id. Null
in place of topics means all topics for which a group has an offset.
"""

from __future__ import annotations

from neve.protocol.compiler import define

OFFSET_FETCH = define(
    """
    OffsetFetch 9, versions 0-10, flexible 6+
    request
      group_id string 0-7
      topics []Topic 0-7 nullable 2-7
        name string
        partition_indexes []int32
      groups []Group 8+
        group_id string
        member_id string 9+ nullable = null
        member_epoch int32 9+ = -1
        topics []GroupTopic nullable
          name string 8-9
          topic_id uuid 10+
          partition_indexes []int32
      require_stable bool 7+
    response
      throttle_time_ms int32 3+
      topics []Topic 0-7
        name string
        partitions []Partition
          partition_index int32
          committed_offset int64
          committed_leader_epoch int32 5-7 = -1
          metadata string nullable
          error_code int16
      error_code int16 2-7
      groups []Group 8+
        group_id string
        topics []GroupTopic
          name string 8-9
          topic_id uuid 10+
          partitions []GroupPartition
            partition_index int32
            committed_offset int64
            committed_leader_epoch int32 = -1
            metadata string nullable
            error_code int16
        error_code int16
    """
)
OffsetFetchRequest = OFFSET_FETCH.Request
OffsetFetchResponse = OFFSET_FETCH.Response
