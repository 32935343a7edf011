"""A partition that a consumer fetches, and what it was last sent about it."""

from __future__ import annotations

from neve.protocol.messages.fetch import FetchRequest

NEVER = -2


class FetchPartition:
    """One partition of a fetch. In a session it lives from one request to the next."""

    __slots__ = (
        "index",
        "leader_epoch",
        "max_bytes",
        "offset",
        "sent_start",
        "sent_watermark",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, asked: FetchRequest.Partition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = asked.partition
        # From the last response of this session: only changes are sent again.
        self.sent_watermark = NEVER
        self.sent_start = NEVER
        self.ask(asked)

    def ask(self, asked: FetchRequest.Partition) -> None:
        """Take over what the next request asks for, usually from another offset."""
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.index
