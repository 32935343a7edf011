"""The log of a partition that a request names, or the error for why it is not to be had here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import RefusedError
from neve.broker.handlers.topic_names import existing_topic
from neve.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.log.partition import PartitionLog

_NOT_TOLD = -1


def led_log(broker: Broker, name: str, number: int) -> PartitionLog:
    """The log of a partition that this broker leads."""
    topic = existing_topic(broker, name)
    if not 0 <= number < len(topic.partitions):
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name!r} has no partition {number}: it has {len(topic.partitions)}",
        )
    log = broker.node.log_of(topic.id_bytes, number)
    if log is None:
        raise RefusedError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this broker does not lead partition {number} of {name!r}: ask for metadata again",
        )
    return log


def check_epoch(log: PartitionLog, of_client: int) -> None:
    """Refuse a client whose view of the leadership is older than ours, or newer."""
    if of_client in (_NOT_TOLD, log.epoch):
        return
    if of_client < log.epoch:
        raise RefusedError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {of_client} is over, it is {log.epoch} now: ask for metadata again",
        )
    raise RefusedError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {of_client} is not known here yet, only {log.epoch}: try again",
    )
