"""OffsetCommit: commit offsets of a group. Since version 10, topics are named by id."""

from __future__ import annotations

from neve.protocol.compiler import define

OFFSET_COMMIT = define(
    """
    OffsetCommit 8, versions 0-10, flexible 8+
    request
      group_id string
      generation_id_or_member_epoch int32 1+ = -1
      member_id string 1+
      group_instance_id string 7+ nullable = null
      retention_time_ms int64 2-4 = -1
      topics []Topic
        name string 0-9
        topic_id uuid 10+
        partitions []Partition
          partition_index int32
          committed_offset int64
          committed_leader_epoch int32 6+ = -1
          commit_timestamp int64 1 = -1
          committed_metadata string nullable
    response
      throttle_time_ms int32 3+
      topics []Topic
        name string 0-9
        topic_id uuid 10+
        partitions []Partition
          partition_index int32
          error_code int16
    """
)
OffsetCommitRequest = OFFSET_COMMIT.Request
OffsetCommitResponse = OFFSET_COMMIT.Response
