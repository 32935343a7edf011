"""Which names topics may have, how often a request may name one, which clients may not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from neve.broker.errors import InternalTopicError
from neve.cluster import topic_rules
from neve.cluster.topic_rules import NoTopicError
from neve.errors import InvalidError
from neve.log.segment.state_table import is_internal

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic

T = TypeVar("T")


def check_new_name(broker: Broker, name: str) -> None:
    """Refuse a name that no new topic may have, or that is taken."""
    topic_rules.check_topic_name(name)
    if is_internal(name):
        # Such a log is kept as a table: a record goes when its key has a newer one.
        raise InternalTopicError(
            f"{name!r} cannot be a client's topic: the broker keeps its own state under that name"
        )
    topic_rules.check_new_name(broker.node.cluster.state, name)


def check_not_internal(name: str, done: str) -> None:
    if is_internal(name):
        raise InvalidError(f"{name} holds the broker's own state and cannot be {done} by clients")


def existing_topic(broker: Broker, name: str) -> Topic:
    """The topic of this name, or the error for one that cannot be or is not there."""
    topic = broker.node.topic(name)
    if topic is not None:
        return topic
    topic_rules.check_topic_name(name)
    raise NoTopicError(f"there is no topic {name!r}: check its name")


def each_once(asked: Sequence[T], name_of: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Of what a request asks for, one for each name, and how many times it has that name."""
    by_name = {name_of(each): each for each in asked}
    times = Counter(map(name_of, asked))
    return [(each, times[name]) for name, each in by_name.items()]


def check_named_once(name: str, times: int) -> None:
    if times > 1:
        raise InvalidError(f"the request names {name} {times} times: name it once")
