"""Which names topics may have, and which topics clients may not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import RefusedError
from neve.cluster.log import check_topic_name
from neve.errors import InvalidError
from neve.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


def is_internal(name: str) -> bool:
    """Whether the broker keeps its own state in the topic of this name."""
    return name in INTERNAL_TOPICS


def is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidError:
        return False
    return True


def check_new_name(broker: Broker, name: str) -> None:
    """Refuse a name that no new topic may have. A name that is taken is not looked at here."""
    try:
        check_topic_name(name)
    except InvalidError as error:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    check_not_internal(name, "created")
    # Metric names write both signs alike, so Kafka keeps such names apart, and tools rely on it.
    alike = name.replace(".", "_")
    for topic in broker.node.cluster.state.topics.values():
        if topic.name != name and topic.name.replace(".", "_") == alike:
            raise RefusedError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} would differ from {topic.name!r} by '.' and '_' alone: "
                "choose another name",
            )


def check_not_internal(name: str, done: str) -> None:
    if is_internal(name):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"{name} holds the broker's own state and cannot be {done} by clients",
        )


def existing_topic(broker: Broker, name: str) -> Topic:
    """The topic of this name, or the error for one that cannot be or is not there."""
    topic = broker.node.topic(name)
    if topic is not None:
        return topic
    if not is_legal(name):
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be the name of a topic"
        )
    raise RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}: check its name"
    )
