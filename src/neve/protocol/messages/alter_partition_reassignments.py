"""AlterPartitionReassignments: name the brokers that should lead partitions."""

from __future__ import annotations

from neve.protocol.compiler import define

ALTER_PARTITION_REASSIGNMENTS = define(
    """
    AlterPartitionReassignments 45, versions 0-1, flexible 0+
    request
      timeout_ms int32 = 60000
      allow_replication_factor_change bool 1+ = true
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          replicas []int32 nullable = null
    response
      throttle_time_ms int32
      allow_replication_factor_change bool 1+ = true
      error_code int16
      error_message string nullable
      responses []Topic
        name string
        partitions []Partition
          partition_index int32
          error_code int16
          error_message string nullable
    """
)
AlterPartitionReassignmentsRequest = ALTER_PARTITION_REASSIGNMENTS.Request
AlterPartitionReassignmentsResponse = ALTER_PARTITION_REASSIGNMENTS.Response
