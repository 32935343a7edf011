"""DescribeTopicPartitions: the partitions of topics, in pages."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_TOPIC_PARTITIONS = define(
    """
    DescribeTopicPartitions 75, versions 0, flexible 0+
    request
      topics []Topic
        name string
      response_partition_limit int32 = 2000
      cursor Cursor nullable = null
        topic_name string
        partition_index int32
    response
      throttle_time_ms int32
      topics []Topic
        error_code int16
        name string nullable
        topic_id uuid
        is_internal bool
        partitions []Partition
          error_code int16
          partition_index int32
          leader_id int32
          leader_epoch int32 = -1
          replica_nodes []int32
          isr_nodes []int32
          eligible_leader_replicas []int32 nullable = null
          last_known_elr []int32 nullable = null
          offline_replicas []int32
        topic_authorized_operations int32 = -2147483648
      next_cursor Cursor nullable = null
        topic_name string
        partition_index int32
    """
)
DescribeTopicPartitionsRequest = DESCRIBE_TOPIC_PARTITIONS.Request
DescribeTopicPartitionsResponse = DESCRIBE_TOPIC_PARTITIONS.Response
