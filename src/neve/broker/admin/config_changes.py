"""Change the configs of a topic, of one broker, or of all brokers together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve.broker.admin.duplicates import check_named_once, each_once
from neve.cluster.broker_config import (
    check_broker_configs,
    configs_of_node,
    known_broker_config,
    set_broker_configs,
)
from neve.cluster.topic_config import (
    ConfigDefinition,
    InvalidConfigError,
    check_configs,
    default_text,
    known_config,
)
from neve.errors import InvalidError

if TYPE_CHECKING:
    from neve.broker.admin.changes import Changes
    from neve.cluster.log import ClusterLog
    from neve.cluster.node import Node
    from neve.cluster.state import Topic
    from neve.settings import Settings


class ConfigOperation(IntEnum):
    """How a request changes one config, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEdit(NamedTuple):
    """A change of one config. `operation` may be a number that no ConfigOperation has."""

    name: str
    value: str | None
    operation: int = ConfigOperation.SET

    @property
    def given_value(self) -> str:
        """The value, which must not be null. Raises InvalidError if it is."""
        if self.value is None:
            raise InvalidError(f"the value of {self.name} is null: give a value")
        return self.value


class ConfigTarget(ABC):
    """A resource whose configs can be changed. `kept` has the values that were given for it."""

    kept: Mapping[str, str]

    @abstractmethod
    def known(self, name: str) -> ConfigDefinition:
        """Return the config of this name. Raises an error if it does not exist or is fixed."""

    @abstractmethod
    def default(self, about: ConfigDefinition) -> str:
        """Return the value of a config that is not given."""

    @abstractmethod
    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        """Raise an error if these values cannot be given, or these configs not be removed."""

    @abstractmethod
    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        """Keep these values, and remove those configs."""


class TopicTarget(ConfigTarget):
    """The configs of a topic."""

    def __init__(self, node: Node, settings: Settings, topic: Topic) -> None:
        self._node = node
        self._settings = settings
        self._name = topic.name
        self.kept = topic.configs

    def known(self, name: str) -> ConfigDefinition:
        return known_config(name)

    def default(self, about: ConfigDefinition) -> str:
        changed = self._node.broker_configs.topic_defaults
        return default_text(about, self._settings.segment, changed)

    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        del removed  # a config that another version of Neve kept may be removed
        check_configs(values)

    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        return self._node.topics.set_configs(self._name, values, removed)


class BrokerTarget(ConfigTarget):
    """The configs of a broker, or of all brokers (ALL_NODES)."""

    def __init__(self, node: Node, settings: Settings, node_id: int) -> None:
        self._node = node
        self._settings = settings
        self._node_id = node_id
        self.kept = node.cluster.state.broker_configs.get(node_id, {})

    def known(self, name: str) -> ConfigDefinition:
        return known_broker_config(name)

    def default(self, about: ConfigDefinition) -> str:
        assert about.default is not None, "no list among them has its default from a setting"
        return about.default

    def check(self, values: Mapping[str, str], removed: tuple[str, ...]) -> None:
        """Check the values alone, and together with all other configs of this broker."""
        check_broker_configs(values, self._settings)
        kept = configs_of_node(self._node.cluster.state, self._node.node_id)
        left = {name: text for name, text in kept.items() if name not in removed}
        check_broker_configs({**left, **values}, self._settings)

    def change(self, values: Mapping[str, str], removed: tuple[str, ...]) -> Awaitable[object]:
        return set_broker_configs(self._node.cluster, self._node_id, values, removed)


Derive: TypeAlias = Callable[[ConfigTarget, Sequence[ConfigEdit]], dict[str, str]]
"""Returns all configs that a resource keeps after these edits."""


def replace_all(target: ConfigTarget, edits: Sequence[ConfigEdit]) -> dict[str, str]:
    """Replace all configs of a resource by those of the edits."""
    del target
    return {edit.name: edit.given_value for edit in edits}


def apply_edits(target: ConfigTarget, edits: Sequence[ConfigEdit]) -> dict[str, str]:
    """Set or delete single configs of a resource, or edit them as lists."""
    wanted = dict(target.kept)
    for edit in edits:
        match edit.operation:
            case ConfigOperation.DELETE:
                if edit.name not in wanted:
                    target.known(edit.name)
                wanted.pop(edit.name, None)
            case ConfigOperation.SET:
                wanted[edit.name] = edit.given_value
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                wanted[edit.name] = _edited_list(target, edit)
            case _:
                raise InvalidError(f"{edit.name}: there is no operation {edit.operation}")
    return wanted


def _edited_list(target: ConfigTarget, edit: ConfigEdit) -> str:
    about = target.known(edit.name)
    if about.kind != "list":
        raise InvalidConfigError(f"{about.name} is not a list: set it, nothing can be appended")
    present = target.kept.get(about.name, target.default(about))
    entries, given = _entries(present), _entries(edit.given_value)
    if edit.operation == ConfigOperation.APPEND:
        entries += [entry for entry in given if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in given]
    return ",".join(entries)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


async def change_configs(
    cluster: ClusterLog,
    find: Callable[[], ConfigTarget],
    edits: Sequence[ConfigEdit],
    derive: Derive,
    changes: Changes | None,
) -> None:
    """Change the configs of the resource that `find` returns. Only checks if `changes` is None.

    Raises InvalidError if the edits name a config twice, or cannot be made.
    """
    for edit, times in each_once(edits, attrgetter("name")):
        check_named_once(f"config {edit.name!r}", times)
    _differences(find(), edits, derive)
    if changes is not None:
        await changes.make(partial(_change_in_turn, cluster, find, edits, derive))


async def _change_in_turn(
    cluster: ClusterLog,
    find: Callable[[], ConfigTarget],
    edits: Sequence[ConfigEdit],
    derive: Derive,
) -> None:
    """Make the edits after all changes that were requested before, and on the state they left.

    A change whose client has given up may still take effect: a later one must come after it, even
    if the configs look as wanted until then.
    """
    async with cluster.changing_configs:
        await cluster.refresh()
        target = find()
        values, removed = _differences(target, edits, derive)
        if values or removed:
            await target.change(values, removed)


def _differences(
    target: ConfigTarget, edits: Sequence[ConfigEdit], derive: Derive
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the configs to set and the configs to remove. Raises an error if they are invalid."""
    wanted = derive(target, edits)
    values = {name: value for name, value in wanted.items() if target.kept.get(name) != value}
    removed = tuple(name for name in target.kept if name not in wanted)
    target.check(values, removed)
    return values, removed
