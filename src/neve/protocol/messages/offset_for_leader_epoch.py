"""OffsetForLeaderEpoch: the end offset of a leader epoch of a partition.

After a change of the leader, a consumer checks with it whether the records that it has read are
still in the log. Versions 0 and 1 were for replicas.
"""

from __future__ import annotations

from neve.protocol.compiler import define

OFFSET_FOR_LEADER_EPOCH = define(
    """
    OffsetForLeaderEpoch 23, versions 2-4, flexible 4+
    request
      replica_id int32 3+ = -2
      topics []Topic
        topic string
        partitions []Partition
          partition int32
          current_leader_epoch int32 = -1
          leader_epoch int32
    response
      throttle_time_ms int32
      topics []Topic
        topic string
        partitions []Partition
          error_code int16
          partition int32
          leader_epoch int32 = -1
          end_offset int64 = -1
    """
)
OffsetForLeaderEpochRequest = OFFSET_FOR_LEADER_EPOCH.Request
OffsetForLeaderEpochResponse = OFFSET_FOR_LEADER_EPOCH.Response
