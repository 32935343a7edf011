"""ListPartitionReassignments: the partitions that are not yet led where they should be."""

from __future__ import annotations

from neve.protocol.compiler import define

LIST_PARTITION_REASSIGNMENTS = define(
    """
    ListPartitionReassignments 46, versions 0, flexible 0+
    request
      timeout_ms int32 = 60000
      topics []Topic nullable = null
        name string
        partition_indexes []int32
    response
      throttle_time_ms int32
      error_code int16
      error_message string nullable
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          replicas []int32
          adding_replicas []int32
          removing_replicas []int32
    """
)
ListPartitionReassignmentsRequest = LIST_PARTITION_REASSIGNMENTS.Request
ListPartitionReassignmentsResponse = LIST_PARTITION_REASSIGNMENTS.Response
