"""Fetch: records of partitions, in whole batches. Sessions exist since version 7.

Since version 13, requests name topics by id. Versions below 4 return old message formats, which
current clients do not request.
"""

from __future__ import annotations

from neve.protocol.compiler import define

FETCH = define(
    """
    Fetch 1, versions 4-18, flexible 12+
    request
      cluster_id string 12+ nullable tag 0 = null
      replica_id int32 4-14 = -1
      replica_state ReplicaState 15+ tag 1
        replica_id int32 = -1
        replica_epoch int64 = -1
      max_wait_ms int32
      min_bytes int32
      max_bytes int32 = 0x7fffffff
      isolation_level int8
      session_id int32 7+
      session_epoch int32 7+ = -1
      topics []Topic
        topic string 4-12
        topic_id uuid 13+
        partitions []Partition
          partition int32
          current_leader_epoch int32 9+ = -1
          fetch_offset int64
          last_fetched_epoch int32 12+ = -1
          log_start_offset int64 5+ = -1
          partition_max_bytes int32
          replica_directory_id uuid 17+ tag 0
          high_watermark int64 18+ tag 1 = 9223372036854775807
      forgotten_topics_data []ForgottenTopic 7+
        topic string 7-12
        topic_id uuid 13+
        partitions []int32
      rack_id string 11+
    response
      throttle_time_ms int32
      error_code int16 7+
      session_id int32 7+
      responses []Topic
        topic string 4-12
        topic_id uuid 13+
        partitions []Partition
          partition_index int32
          error_code int16
          high_watermark int64
          last_stable_offset int64 = -1
          log_start_offset int64 5+ = -1
          diverging_epoch EpochEndOffset 12+ tag 0
            epoch int32 = -1
            end_offset int64 = -1
          current_leader Leader 12+ tag 1
            leader_id int32 = -1
            leader_epoch int32 = -1
          snapshot_id SnapshotId 12+ tag 2
            end_offset int64 = -1
            epoch int32 = -1
          aborted_transactions []AbortedTransaction nullable
            producer_id int64
            first_offset int64
          preferred_read_replica int32 11+ = -1
          records records nullable
      node_endpoints []Node 16+ tag 0
        node_id int32
        host string
        port int32
        rack string nullable = null
    """
)
FetchRequest = FETCH.Request
FetchResponse = FETCH.Response
