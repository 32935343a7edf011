"""The configs of brokers that can be changed while they run.

They have Kafka's names. Each sets the default of a topic config, or a setting. The cluster log
stores them for single nodes and for all nodes; a node's own value takes precedence. All other
settings are read when a broker starts. A test compares docs/users/topics.md with the declarations
here.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from neve.cluster.log import ClusterLog
from neve.cluster.records import ALL_NODES
from neve.cluster.state import ClusterState
from neve.cluster.topic_config import CONFIGS, ConfigDefinition, InvalidConfigError
from neve.errors import InvalidError
from neve.serving.logs import event
from neve.settings import Settings, declared

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BrokerConfigDefinition:
    """A config under Kafka's name: either a topic config's default, or a setting."""

    about: ConfigDefinition
    topic_config: str | None = None
    setting: str | None = None


_TOPIC_DEFAULTS = {
    "compression.type": "compression.type",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
}
_SETTINGS = {
    "auto.create.topics.enable": "topics.auto.create",
    "group.initial.rebalance.delay.ms": "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms": "group.max.session.timeout.ms",
    "group.min.session.timeout.ms": "group.min.session.timeout.ms",
    "num.partitions": "topics.default.partitions",
}


def _of_topics(name: str, topic_config: str) -> BrokerConfigDefinition:
    about = dataclasses.replace(
        CONFIGS[topic_config], name=name, doc=f"the default of a topic's {topic_config}"
    )
    return BrokerConfigDefinition(about=about, topic_config=topic_config)


def _of_setting(name: str, setting: str) -> BrokerConfigDefinition:
    known = declared()[setting]
    about = ConfigDefinition(
        name=name,
        kind={bool: "boolean", int: "long"}[known.kind],
        default=str(known.default).lower(),
        doc=f"the setting {setting}: {known.doc}",
        effective=True,
        minimum=known.minimum,
        maximum=known.maximum,
    )
    return BrokerConfigDefinition(about=about, setting=setting)


BROKER_CONFIGS: Mapping[str, BrokerConfigDefinition] = MappingProxyType(
    {name: _of_topics(name, topic_config) for name, topic_config in _TOPIC_DEFAULTS.items()}
    | {name: _of_setting(name, setting) for name, setting in _SETTINGS.items()}
)


class FixedConfigError(InvalidError):
    """A broker config that does not exist, or that cannot be changed while brokers run."""


def known_broker_config(name: str) -> ConfigDefinition:
    """Return the config of this name. Raises FixedConfigError if it cannot be changed."""
    found = BROKER_CONFIGS.get(name)
    if found is None:
        close = difflib.get_close_matches(name, BROKER_CONFIGS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise FixedConfigError(
            f"broker config {name!r} cannot be changed while brokers run{hint}: these can be: "
            f"{', '.join(sorted(BROKER_CONFIGS))}; anything else is a setting, read at the start"
        )
    return found.about


def check_broker_configs(values: Mapping[str, str], settings: Settings) -> None:
    """Raise InvalidConfigError for an invalid value, or values that contradict each other.

    Raises FixedConfigError for a config that cannot be changed.
    """
    for name, text in values.items():
        known_broker_config(name).check(text)
    try:
        _with_settings(values, settings)
    except InvalidError as error:
        raise InvalidConfigError(str(error)) from error


def configs_of_node(state: ClusterState, node_id: int) -> dict[str, str]:
    """Return the configs of a node: its own, and those of all nodes that it does not override."""
    kept = state.broker_configs
    return {**kept.get(ALL_NODES, {}), **kept.get(node_id, {})}


def topic_defaults(state: ClusterState, incarnation: int) -> dict[str, str]:
    """Return the defaults of topic configs that were changed for the node of a process.

    They are by the names of the topic configs.
    """
    broker = state.brokers.get(incarnation)
    given = configs_of_node(state, ALL_NODES if broker is None else broker.node_id)
    return _topic_defaults(given)


def _topic_defaults(given: Mapping[str, str]) -> dict[str, str]:
    return {_TOPIC_DEFAULTS[name]: text for name, text in given.items() if name in _TOPIC_DEFAULTS}


def _with_settings(given: Mapping[str, str], settings: Settings) -> Settings:
    """Return the settings as changed by these configs. Raises InvalidError if they conflict."""
    known = declared()
    groups: dict[str, dict[str, Any]] = {}
    for name, setting in _SETTINGS.items():
        if name in given:
            about, text = known[setting], given[name]
            value = text.lower() == "true" if about.kind is bool else about.kind(text)
            groups.setdefault(about.group, {})[about.field] = value
    changed = {
        group: dataclasses.replace(getattr(settings, group), **values)
        for group, values in groups.items()
    }
    return dataclasses.replace(settings, **changed)


async def set_broker_configs(
    cluster: ClusterLog, node_id: int, values: Mapping[str, str], removed: Collection[str] = ()
) -> None:
    """Set configs of one node, or of all nodes (`ALL_NODES`), and remove others.

    They apply to the node of this process at once. The caller has validated them.
    """
    await cluster.set_broker_configs(node_id, values, removed)
    given = {"node": node_id, "configs": dict(values), "removed": list(removed)}
    event(_log, logging.INFO, "broker configs changed", **given)


class BrokerConfigs:
    """The effective configs of one node. `on_change` is called after each change."""

    def __init__(self, settings: Settings, state: ClusterState, incarnation: int) -> None:
        self._as_started = settings
        self._node_id = state.brokers[incarnation].node_id
        self._given: dict[str, str] = {}
        self.on_change: list[Callable[[], None]] = []
        self.settings = settings
        self.topic_defaults: dict[str, str] = {}
        self.apply(state)

    def apply(self, state: ClusterState) -> bool:
        """Apply a new state of the cluster log. Returns whether the configs have changed."""
        given = configs_of_node(state, self._node_id)
        if given == self._given:
            return False
        self._given = given
        try:
            check_broker_configs(given, self._as_started)
        except InvalidError as error:  # stored by another version of Neve
            _log.warning("broker configs are left as they were: %s", error)
            return False
        self.settings = _with_settings(given, self._as_started)
        self.topic_defaults = _topic_defaults(given)
        for changed in self.on_change:
            changed()
        return True
