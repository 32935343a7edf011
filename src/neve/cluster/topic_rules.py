"""Rules for names and partition counts of topics, checked before a change is proposed."""

from __future__ import annotations

import re

from neve.cluster.state import ClusterState
from neve.errors import InvalidError
from neve.settings import ClusterSettings

TOPIC_NAME_MAX = 249
# The limit whatever the settings are: a topic's state is a part of every checkpoint.
PARTITIONS_MAX = 100_000
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicExistsError(InvalidError):
    """A topic of this name exists."""


class NoTopicError(InvalidError):
    """There is no topic of this name."""


class TopicNameError(InvalidError):
    """The name is not valid, or collides with that of an existing topic."""


class AssignmentError(InvalidError):
    """A manual assignment of partitions to brokers is invalid."""


class PartitionCountError(InvalidError):
    """The partition count of a topic, or of the cluster, would be out of bounds."""


def check_topic_name(name: str) -> None:
    """Raise TopicNameError unless the name follows Kafka's rules."""
    if not _TOPIC_NAME.fullmatch(name) or len(name) > TOPIC_NAME_MAX or name in {".", ".."}:
        raise TopicNameError(
            f"{name!r} cannot be a topic's name: 1 to {TOPIC_NAME_MAX} of letters, digits, '.', "
            "'_' and '-', and not '.' or '..'"
        )


def check_new_name(state: ClusterState, name: str) -> None:
    """Raise an error if the name is taken, or equals that of another topic in metrics."""
    like = state.like(name)
    if state.topic(name) is not None:
        raise TopicExistsError(f"there is already a topic {name!r}")
    if like is not None:
        raise TopicNameError(
            f"{name!r} collides with the topic {like.name!r} in metrics, where '.' and '_' are "
            "the same: choose another name"
        )


def check_partition_count(
    state: ClusterState, limits: ClusterSettings, name: str, total: int, before: int = 0
) -> None:
    """Raise PartitionCountError if a topic with `before` partitions cannot have `total`."""
    if not 1 <= total <= limits.topic_partitions_max:
        raise PartitionCountError(
            f"topic {name!r} cannot have {total} partitions: 1 to {limits.topic_partitions_max} "
            "(cluster.topic.partitions.max)"
        )
    if state.partition_count - before + total > limits.partitions_max:
        raise PartitionCountError(
            f"topic {name!r} cannot have {total} partitions: all topics together would have more "
            f"than {limits.partitions_max} (cluster.partitions.max): delete topics or raise it"
        )
