"""The leader of a partition that a request names, or the error to respond with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
    UnknownPartitionError,
)
from neve.broker.handlers.topic_names import existing_topic

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.partition_leader import PartitionLeader

_NO_EPOCH = -1


def led_partition(broker: Broker, name: str, number: int) -> PartitionLeader:
    """The leader of a partition. Raises NotLeaderError if this broker does not lead it."""
    topic = existing_topic(broker, name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownPartitionError(
            f"topic {name!r} has no partition {number}: it has {len(topic.partitions)}"
        )
    leader = broker.node.leader_of(topic.id_bytes, number)
    if leader is None:
        raise NotLeaderError(
            f"this broker does not lead partition {number} of {name!r}: ask for metadata again"
        )
    return leader


def check_epoch(leader: PartitionLeader, of_client: int) -> None:
    """Raise an error if the client knows an older or a newer leader epoch than the broker."""
    epoch = leader.log.epoch
    if of_client in (_NO_EPOCH, epoch):
        return
    if of_client < epoch:
        raise FencedLeaderEpochError(
            f"leader epoch {of_client} is over, it is {epoch} now: ask for metadata again"
        )
    raise UnknownLeaderEpochError(
        f"leader epoch {of_client} is not known here yet, only {epoch}: try again"
    )
