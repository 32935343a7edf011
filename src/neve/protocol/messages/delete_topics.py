"""DeleteTopics: delete topics by name; since version 6 by name or by id."""

from __future__ import annotations

from neve.protocol.compiler import define

DELETE_TOPICS = define(
    """
    DeleteTopics 20, versions 0-6, flexible 4+
    request
      topics []Topic 6+
        name string nullable = null
        topic_id uuid
      topic_names []string 0-5
      timeout_ms int32
    response
      throttle_time_ms int32 1+
      responses []Topic
        name string nullable 6+
        topic_id uuid 6+
        error_code int16
        error_message string 5+ nullable = null
    """
)
DeleteTopicsRequest = DELETE_TOPICS.Request
DeleteTopicsResponse = DELETE_TOPICS.Response
