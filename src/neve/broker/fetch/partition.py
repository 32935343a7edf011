"""What a consumer wants of one partition, and what it was last told of it."""

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
        "told_start",
        "told_watermark",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, asked: FetchRequest.Partition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = asked.partition
        # What the last answer in this session said: only what changed is said again.
        self.told_watermark = NEVER
        self.told_start = NEVER
        self.ask(asked)

    def ask(self, asked: FetchRequest.Partition) -> None:
        """The consumer asks anew, from another offset as a rule."""
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.index
