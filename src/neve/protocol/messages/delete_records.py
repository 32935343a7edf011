"""DeleteRecords: delete all records before an offset; -1 means the high watermark."""

from __future__ import annotations

from neve.protocol.compiler import define

DELETE_RECORDS = define(
    """
    DeleteRecords 21, versions 0-2, flexible 2+
    request
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          offset int64
      timeout_ms int32
    response
      throttle_time_ms int32
      topics []Topic
        name string
        partitions []Partition
          partition_index int32
          low_watermark int64
          error_code int16
    """
)
DeleteRecordsRequest = DELETE_RECORDS.Request
DeleteRecordsResponse = DELETE_RECORDS.Response
