"""ListOffsets: the offset at a time, or at the start (-2), the end (-1) or the newest time (-3).

Version 7 added the newest time. Versions 8, 9 and 11 added special times for tiered logs (-4, -5,
-6), and no fields. The broker supports -4 and -5; -6 gets an error. Version 10 added the time-out.
"""

from __future__ import annotations

from neve.protocol.compiler import define

LIST_OFFSETS = define(
    """
    ListOffsets 2, versions 1-11, flexible 6+
    request
      replica_id int32
      isolation_level int8 2+
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          current_leader_epoch int32 4+ = -1
          timestamp int64
      timeout_ms int32 10+
    response
      throttle_time_ms int32 2+
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          error_code int16
          timestamp int64 = -1
          offset int64 = -1
          leader_epoch int32 4+ = -1
    """
)
ListOffsetsRequest = LIST_OFFSETS.Request
ListOffsetsResponse = LIST_OFFSETS.Response
