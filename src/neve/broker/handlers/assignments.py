"""Manual assignments of partitions to brokers: checked, not kept, since the store replicates."""

from __future__ import annotations

from typing import Any

from neve.broker.error_codes import RefusedError
from neve.protocol.codes import ErrorCode


def check_brokers_named(topic: Any) -> None:
    """Refuse a topic whose assignments leave a partition without a broker."""
    if not all(each.broker_ids for each in topic.assignments):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"an assignment of topic {topic.name!r} names no broker",
        )
