"""Find, create, extend and delete topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.errors import InternalTopicError, UnknownPartitionError, UnknownTopicIdError
from neve.cluster import topic_rules
from neve.cluster.preferred import check_preferred
from neve.cluster.topic_config import InvalidConfigError, check_configs
from neve.cluster.topic_rules import (
    AssignmentError,
    NoTopicError,
    PartitionCountError,
    check_partition_count,
)
from neve.errors import InvalidError
from neve.log.segment.state_table import is_internal

if TYPE_CHECKING:
    from neve.cluster.node import Node
    from neve.cluster.state import Topic
    from neve.settings import Settings

_NO_CONFIGS: Mapping[str, str | None] = {}
_NO_NODES: Mapping[int, Sequence[int]] = MappingProxyType({})


class NewTopic(NamedTuple):
    """A topic that was checked, and can be created."""

    name: str
    partitions: int
    configs: dict[str, str]
    preferred: Mapping[int, Sequence[int]] = _NO_NODES


class TopicAdmin:
    """The topics of a node's cluster."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self._node = node
        self._settings = settings

    @property
    def auto_create(self) -> bool:
        """Whether a topic that a client asks for by name may be created."""
        return self._node.broker_configs.settings.topics.auto_create

    def all(self) -> list[Topic]:
        """Return every topic, sorted by name."""
        return sorted(self._node.cluster.state.topics.values(), key=lambda topic: topic.name)

    def get(self, name: str) -> Topic | None:
        """Return the topic of this name, or None if it does not exist."""
        return self._node.cluster.state.topic(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic of this id, or None if it does not exist."""
        return self._node.cluster.state.topic_by_id(topic_id)

    def find(self, name: str) -> Topic:
        """Return the topic of this name. Raises TopicNameError or NoTopicError."""
        topic = self.get(name)
        if topic is not None:
            return topic
        topic_rules.check_topic_name(name)
        raise NoTopicError(f"there is no topic {name!r}: check its name")

    def find_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic of this id. Raises UnknownTopicIdError."""
        topic = self.get_by_id(topic_id)
        if topic is None:
            raise UnknownTopicIdError(topic_id)
        return topic

    def find_partition(self, name: str, number: int) -> Topic:
        """Return the topic of a partition.

        Raises TopicNameError, NoTopicError or UnknownPartitionError.
        """
        topic = self.find(name)
        if not 0 <= number < len(topic.partitions):
            raise UnknownPartitionError(
                f"partition {number} does not exist in topic {name!r}; valid partitions: "
                + (f"0-{len(topic.partitions) - 1}" if topic.partitions else "none")
            )
        return topic

    def has_partition(self, name: str, number: int) -> bool:
        """Return whether a topic of this name exists and has this partition."""
        topic = self.get(name)
        return topic is not None and 0 <= number < len(topic.partitions)

    def check_new_name(self, name: str) -> None:
        """Raise an error if the name is invalid, reserved or taken."""
        topic_rules.check_topic_name(name)
        if is_internal(name):
            # Such a log is kept as a table: a newer record of a key replaces the older one.
            raise InternalTopicError(
                f"{name!r} cannot be a client's topic: the broker keeps its own state under that "
                "name"
            )
        topic_rules.check_new_name(self._node.cluster.state, name)

    def plan(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str | None] = _NO_CONFIGS,
        preferred: Mapping[int, Sequence[int]] = _NO_NODES,
    ) -> NewTopic:
        """Check a topic before it is created. Raises an error if it cannot be created.

        `partitions` is the broker's default if it is None. `preferred` has the brokers that should
        lead a partition, by its number.
        """
        self.check_new_name(name)
        if partitions is None:
            partitions = self._node.broker_configs.settings.topics.default_partitions
        check_partition_count(self._node.cluster.state, self._settings.cluster, name, partitions)
        given: dict[str, str] = {}
        for config, value in configs.items():
            if value is None:
                raise InvalidConfigError(f"the value of {config} is null: give a value")
            given[config] = value
        check_configs(given)
        self._check_preferred(name, preferred)
        return NewTopic(name, partitions, given, preferred)

    def _check_preferred(self, name: str, preferred: Mapping[int, Sequence[int]]) -> None:
        for nodes in preferred.values():
            check_preferred(self._node.cluster.state, name, nodes)

    async def create(self, plan: NewTopic) -> Topic:
        """Create a topic. Raises TopicExistsError if another client was faster."""
        return await self._node.topics.create(*plan)

    def plan_growth(
        self, name: str, total: int, assigned: Sequence[Sequence[int]] | None = None
    ) -> dict[int, Sequence[int]]:
        """Check that a topic may have `total` partitions.

        `assigned` has the brokers that should lead each new partition. Returns them by partition.
        """
        topic = self.find(name)
        check_not_internal(name, "changed")
        present = len(topic.partitions)
        if total <= present:
            raise PartitionCountError(
                f"topic {name!r} has {present} partitions: the new total must be larger than "
                f"that, not {total}"
            )
        limits = self._settings.cluster
        check_partition_count(self._node.cluster.state, limits, name, total, present)
        if assigned is None:
            return {}
        if len(assigned) != total - present:
            raise AssignmentError(
                f"{len(assigned)} assignments are given for {total - present} new partitions of "
                f"{name!r}"
            )
        preferred = dict(enumerate(assigned, present))
        self._check_preferred(name, preferred)
        return preferred

    async def grow(self, name: str, total: int, preferred: Mapping[int, Sequence[int]]) -> None:
        """Add partitions to a topic, up to `total`.

        `preferred` has the brokers that should lead a new partition, by its number.
        """
        await self._node.topics.add_partitions(name, total, preferred)

    async def delete(self, name: str) -> Topic:
        """Delete the topic of this name and return its last state. Its objects are removed later.

        Raises NoTopicError if there is none.
        """
        check_not_internal(name, "deleted")
        return await self._node.topics.delete(name)

    async def delete_by_id(self, topic: Topic) -> Topic:
        """Delete this very topic: never another one that has taken its name.

        Raises UnknownTopicIdError if it does not exist any more.
        """
        check_not_internal(topic.name, "deleted")
        try:
            return await self._node.topics.delete(topic.name, topic.topic_id)
        except NoTopicError:
            raise UnknownTopicIdError(topic.id_bytes) from None


def check_not_internal(name: str, done: str) -> None:
    """Raise InvalidError if the topic holds the broker's own state."""
    if is_internal(name):
        raise InvalidError(f"{name} holds the broker's own state and cannot be {done} by clients")
