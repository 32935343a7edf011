"""Change the configs of topics, of single brokers, and of all brokers together.

Each resource is decided by itself, and keeps what it has not been asked to change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.changes import Changes
from neve.broker.admin.topics import check_not_internal
from neve.cluster.broker_config import (
    check_broker_configs,
    configs_of_node,
    known_broker_config,
    set_broker_configs,
)
from neve.cluster.topic_config import (
    ConfigDeclared,
    InvalidConfigError,
    check_configs,
    default_text,
    known_config,
)
from neve.errors import InvalidError

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic

# Kafka's numbers for what is done to one config.
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class ConfigTarget(ABC):
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


class _TopicTarget(ConfigTarget):
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
        return self._broker.node.topics.set_configs(self._name, values, removed)


class _BrokerTarget(ConfigTarget):
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
        return set_broker_configs(self._broker.node.cluster, self._node_id, values, removed)


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


def topic_target(broker: Broker, name: str) -> ConfigTarget:
    """The configs of a topic. Raises an error if there is no such topic for clients to change."""
    topic = broker.topics.find(name)
    check_not_internal(name, "changed")
    return _TopicTarget(broker, topic)


def broker_target(broker: Broker, node_id: int) -> ConfigTarget:
    """The configs of a broker, or of all brokers (ALL_NODES)."""
    return _BrokerTarget(broker, node_id)


def replaced(target: ConfigTarget, edits: Sequence[ConfigEdit]) -> dict[str, str]:
    """All configs of a resource after these have replaced what it had."""
    del target
    return {edit.name: edit.given_value for edit in edits}


def edited(target: ConfigTarget, edits: Sequence[ConfigEdit]) -> dict[str, str]:
    """All configs of a resource after single ones are set, removed or edited as lists."""
    wanted = dict(target.kept)
    for edit in edits:
        if edit.operation == DELETE:
            if edit.name not in wanted:
                target.known(edit.name)
            wanted.pop(edit.name, None)
        elif edit.operation == SET:
            wanted[edit.name] = edit.given_value
        elif edit.operation in (APPEND, SUBTRACT):
            wanted[edit.name] = _edited_list(target, edit)
        else:
            raise InvalidError(f"{edit.name}: there is no operation {edit.operation}")
    return wanted


def _edited_list(target: ConfigTarget, edit: ConfigEdit) -> str:
    about = target.known(edit.name)
    if about.kind != "list":
        raise InvalidConfigError(f"{about.name} is not a list: set it, nothing can be appended")
    present = target.kept.get(about.name, target.default(about))
    entries, given = _entries(present), _entries(edit.given_value)
    if edit.operation == APPEND:
        entries += [entry for entry in given if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in given]
    return ",".join(entries)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


async def change_configs(
    target: ConfigTarget, wanted: dict[str, str], changes: Changes | None
) -> None:
    """Make `wanted` all that a resource keeps. Only checks it if `changes` is None."""
    values = {name: value for name, value in wanted.items() if target.kept.get(name) != value}
    removed = tuple(name for name in target.kept if name not in wanted)
    target.check(values, removed)
    if changes is not None and (values or removed):
        await changes.make(partial(target.change, values, removed))
