"""Produce: batches of records for partitions.

Current clients use version 3 or later. Versions 0 to 2 are described because librdkafka requires
them before it sends any batches to a broker. Requests in these versions contain message sets of old
formats, which the broker refuses. Since version 13, requests name topics by id.
"""

from __future__ import annotations

from neve.protocol.compiler import define

PRODUCE = define(
    """
    Produce 0, versions 0-13, flexible 9+
    request
      transactional_id string 3+ nullable = null
      acks int16
      timeout_ms int32
      topic_data []Topic
        name string 0-12
        topic_id uuid 13+
        partition_data []Partition
          index int32
          records records nullable
    response
      responses []Topic
        name string 0-12
        topic_id uuid 13+
        partition_responses []Partition
          index int32
          error_code int16
          base_offset int64
          log_append_time_ms int64 2+ = -1
          log_start_offset int64 5+ = -1
          record_errors []RecordError 8+
            batch_index int32
            batch_index_error_message string nullable = null
          error_message string 8+ nullable = null
          current_leader Leader 10+ tag 0
            leader_id int32 = -1
            leader_epoch int32 = -1
      throttle_time_ms int32 1+
      node_endpoints []Node 10+ tag 0
        node_id int32
        host string
        port int32
        rack string nullable = null
    """
)
ProduceRequest = PRODUCE.Request
ProduceResponse = PRODUCE.Response
