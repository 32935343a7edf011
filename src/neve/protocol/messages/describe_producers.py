"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_PRODUCERS = define(
    """
    DescribeProducers 61, versions 0, flexible 0+
    request
      topics []Topic
        name string
        partition_indexes []int32
    response
      throttle_time_ms int32
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          error_code int16
          error_message string nullable = null
          active_producers []Producer
            producer_id int64
            producer_epoch int32
            last_sequence int32 = -1
            last_timestamp int64 = -1
            coordinator_epoch int32
            current_txn_start_offset int64 = -1
    """
)
DescribeProducersRequest = DESCRIBE_PRODUCERS.Request
DescribeProducersResponse = DESCRIBE_PRODUCERS.Response
