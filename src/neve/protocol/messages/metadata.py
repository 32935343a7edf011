"""Metadata: the brokers, the topics, and the leaders of their partitions.

Null in place of topics means all topics. Version 0 has no null: there an empty list means all.
"""

from __future__ import annotations

from neve.protocol.compiler import define

METADATA = define(
    """
    Metadata 3, versions 0-13, flexible 9+
    request
      topics []Topic nullable 1+
        topic_id uuid 10+
        name string nullable 10+
      allow_auto_topic_creation bool 4+ = true
      include_cluster_authorized_operations bool 8-10
      include_topic_authorized_operations bool 8+
    response
      throttle_time_ms int32 3+
      brokers []Broker
        node_id int32
        host string
        port int32
        rack string 1+ nullable = null
      cluster_id string 2+ nullable = null
      controller_id int32 1+ = -1
      topics []Topic
        error_code int16
        name string nullable 12+
        topic_id uuid 10+
        is_internal bool 1+
        partitions []Partition
          error_code int16
          partition_index int32
          leader_id int32
          leader_epoch int32 7+ = -1
          replica_nodes []int32
          isr_nodes []int32
          offline_replicas []int32 5+
        topic_authorized_operations int32 8+ = -2147483648
      cluster_authorized_operations int32 8-10 = -2147483648
      error_code int16 13+
    """
)
MetadataRequest = METADATA.Request
MetadataResponse = METADATA.Response
