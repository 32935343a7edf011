"""Changing the configs of resources: what AlterConfigs and IncrementalAlterConfigs share.

Topics have configs that can be changed while a broker runs, and so have brokers: single ones, and
all of them together. Each resource is decided by itself; what it has not been asked to change is
left as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve.broker.error_codes import admin_error
from neve.broker.handlers.changes import Changes
from neve.broker.handlers.topic_names import (
    check_named_once,
    check_not_internal,
    each_once,
    existing_topic,
)
from neve.cluster.broker_config import check_broker_configs, configs_of_node, known_broker_config
from neve.cluster.records import ALL_NODES
from neve.cluster.topic_config import ConfigDeclared, check_configs, default_text, known_config
from neve.errors import InvalidError, NeveError
from neve.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic

TOPIC, BROKER = 2, 4
ALL_BROKERS = ""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Target(ABC):
    """A resource whose configs can be changed. `kept` is what was given for it before."""

    kept: Mapping[str, str]

    @abstractmethod
    def known(self, name: str) -> ConfigDeclared:
        """The config of this name; raises where there is none to change."""

    @abstractmethod
    def default(self, about: ConfigDeclared) -> str:
        """What a config that is not given has."""

    @abstractmethod
    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        """Raise where these cannot be given, or taken back."""

    @abstractmethod
    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        """Give some and take others back."""


class _TopicTarget(Target):
    def __init__(self, broker: Broker, topic: Topic) -> None:
        self._broker = broker
        self._name = topic.name
        self.kept = topic.configs

    def known(self, name: str) -> ConfigDeclared:
        return known_config(name)

    def default(self, about: ConfigDeclared) -> str:
        changed = self._broker.node.broker_configs.topic_defaults
        return default_text(about, self._broker.settings.segment, changed)

    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        del removed  # what was kept by another version may be taken back
        check_configs(values)

    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        return self._broker.node.set_configs(self._name, values, removed)


class _BrokerTarget(Target):
    def __init__(self, broker: Broker, node_id: int) -> None:
        self._broker = broker
        self._node_id = node_id
        self.kept = broker.node.cluster.state.broker_configs.get(node_id, {})

    def known(self, name: str) -> ConfigDeclared:
        return known_broker_config(name)

    def default(self, about: ConfigDeclared) -> str:
        assert about.default is not None, "no list among them has its default from a setting"
        return about.default

    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        """Alone, and beside all that this broker has."""
        check_broker_configs(values, self._broker.settings)
        kept = configs_of_node(self._broker.node.cluster.state, self._broker.node_id)
        left = {name: text for name, text in kept.items() if name not in removed}
        check_broker_configs({**left, **values}, self._broker.settings)

    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        return self._broker.node.set_broker_configs(self._node_id, values, removed)


class ConfigEdit(NamedTuple):
    """What a request asks of one config. `operation` is one of Kafka's numbers."""

    name: str
    value: str | None
    operation: int = SET

    @property
    def given_value(self) -> str:
        """The value, which must not be null. Raises InvalidError if it is."""
        if self.value is None:
            raise InvalidError(f"{self.name} is given no value, but null")
        return self.value


class ResourceEdit(NamedTuple):
    """What a request asks of one resource."""

    kind: int
    name: str
    configs: Sequence[ConfigEdit]


class EditOutcome(NamedTuple):
    """Whether a resource was changed. `code` is NONE if it was."""

    kind: int
    name: str
    code: ErrorCode
    reason: str | None


Derive: TypeAlias = Callable[[Target, Sequence[ConfigEdit]], dict[str, str]]
"""From a resource and what is asked of its configs to all that it keeps afterwards."""


async def alter(
    broker: Broker, edits: Iterable[ResourceEdit], derive: Derive, *, validate_only: bool
) -> list[EditOutcome]:
    """Change each resource that may be changed, one after the other."""
    changes = None if validate_only else Changes(broker)
    outcomes = []
    for edit, times in each_once(list(edits), attrgetter("kind", "name")):
        code, reason = ErrorCode.NONE, None
        try:
            check_named_once(f"resource {edit.name!r}", times)
            target = _target(broker, edit.kind, edit.name)
            for config, named in each_once(edit.configs, attrgetter("name")):
                check_named_once(f"config {config.name!r}", named)
            await _change(target, derive(target, edit.configs), changes)
        except NeveError as error:
            code, reason = admin_error(error)
        outcomes.append(EditOutcome(edit.kind, edit.name, code, reason))
    return outcomes


def _target(broker: Broker, resource_type: int, name: str) -> Target:
    if resource_type == BROKER:
        return _BrokerTarget(broker, node_named(broker, name))
    if resource_type != TOPIC:
        raise refuse_type(resource_type)
    topic = existing_topic(broker, name)
    check_not_internal(name, "changed")
    return _TopicTarget(broker, topic)


async def _change(target: Target, wanted: dict[str, str], changes: Changes | None) -> None:
    values = {name: value for name, value in wanted.items() if target.kept.get(name) != value}
    removed = tuple(name for name in target.kept if name not in wanted)
    target.check(values, removed)
    if changes is not None and (values or removed):
        await changes.make(partial(target.change, values, removed))


def node_named(broker: Broker, name: str) -> int:
    """The node that a broker resource names, ALL_NODES for all of them together."""
    if name == ALL_BROKERS:
        return ALL_NODES
    if name != str(broker.node_id):
        raise InvalidError(
            f"this is broker {broker.node_id}, and it knows its own configs and those of all "
            f"brokers (resource name {ALL_BROKERS!r}), not those of broker {name!r}"
        )
    return broker.node_id


def refuse_type(resource_type: int) -> InvalidError:
    return InvalidError(
        f"resources of type {resource_type} have no configs here: "
        f"topics ({TOPIC}) and brokers ({BROKER}) have"
    )
