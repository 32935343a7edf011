"""DescribeLogDirs: the sizes of partitions. Null in place of topics means all topics."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_LOG_DIRS = define(
    """
    DescribeLogDirs 35, versions 0-4, flexible 2+
    request
      topics []Topic nullable
        topic string
        partitions []int32
    response
      throttle_time_ms int32
      error_code int16 3+
      results []Folder
        error_code int16
        log_dir string
        topics []Topic
          name string
          partitions []Partition
            partition_index int32
            partition_size int64
            offset_lag int64
            is_future_key bool
        total_bytes int64 4+ = -1
        usable_bytes int64 4+ = -1
    """
)
DescribeLogDirsRequest = DESCRIBE_LOG_DIRS.Request
DescribeLogDirsResponse = DESCRIBE_LOG_DIRS.Response
