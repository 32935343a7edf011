"""ElectLeaders: let the brokers that should lead partitions take them now."""

from __future__ import annotations

from neve.protocol.compiler import define

ELECT_LEADERS = define(
    """
    ElectLeaders 43, versions 0-2, flexible 2+
    request
      election_type int8 1+
      topic_partitions []Topic nullable
        topic string
        partitions []int32
      timeout_ms int32 = 60000
    response
      throttle_time_ms int32
      error_code int16 1+
      replica_election_results []Topic
        topic string
        partition_result []Partition
          partition_id int32
          error_code int16
          error_message string nullable
    """
)
ElectLeadersRequest = ELECT_LEADERS.Request
ElectLeadersResponse = ELECT_LEADERS.Response
