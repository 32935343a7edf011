"""CreatePartitions: add partitions to topics, up to a total. Partitions are never removed."""

from __future__ import annotations

from neve.protocol.compiler import define

CREATE_PARTITIONS = define(
    """
    CreatePartitions 37, versions 0-3, flexible 2+
    request
      topics []Topic
        name string
        count int32
        assignments []Assignment nullable
          broker_ids []int32
      timeout_ms int32
      validate_only bool
    response
      throttle_time_ms int32
      results []Topic
        name string
        error_code int16
        error_message string nullable = null
    """
)
CreatePartitionsRequest = CREATE_PARTITIONS.Request
CreatePartitionsResponse = CREATE_PARTITIONS.Response
