"""CreateTopics: create topics, each independently of the others."""

from __future__ import annotations

from neve.protocol.compiler import define

CREATE_TOPICS = define(
    """
    CreateTopics 19, versions 0-7, flexible 5+
    request
      topics []Topic
        name string
        num_partitions int32
        replication_factor int16
        assignments []Assignment
          partition_index int32
          broker_ids []int32
        configs []Config
          name string
          value string nullable
      timeout_ms int32 = 60000
      validate_only bool 1+
    response
      throttle_time_ms int32 2+
      topics []Topic
        name string
        topic_id uuid 7+
        error_code int16
        error_message string 1+ nullable
        topic_config_error_code int16 5+ tag 0
        num_partitions int32 5+ = -1
        replication_factor int16 5+ = -1
        configs []Config 5+ nullable
          name string
          value string nullable
          read_only bool
          config_source int8 = -1
          is_sensitive bool
    """
)
CreateTopicsRequest = CREATE_TOPICS.Request
CreateTopicsResponse = CREATE_TOPICS.Response
