"""Describe and change the configs of topics and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.config_changes import (
    BrokerTarget,
    ConfigEdit,
    ConfigTarget,
    Derive,
    TopicTarget,
    change_configs,
)
from neve.broker.admin.topics import check_not_internal
from neve.cluster.broker_config import BROKER_CONFIGS
from neve.cluster.records import ALL_NODES
from neve.cluster.topic_config import CONFIGS, ConfigDefinition, default_text
from neve.errors import InvalidError
from neve.settings import SegmentSettings, declared
from neve.settings.masking import masked

if TYPE_CHECKING:
    from neve.broker.admin.changes import Changes
    from neve.broker.admin.topics import TopicAdmin
    from neve.cluster.node import Node
    from neve.serving.addresses import Address
    from neve.settings import Settings
    from neve.settings.declare import SettingDefinition

ALL_BROKERS = ""
"""The resource name of all brokers together."""


class ConfigResourceType(IntEnum):
    """The kinds of resources that have configs here, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """The type of a value, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_TYPES_OF_SETTINGS = {
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    int: ConfigType.LONG,
    float: ConfigType.DOUBLE,
}
# Kafka's name of a broker config that can be changed, by the topic config or setting that it sets.
_BY_TOPIC_CONFIG = {
    row.topic_config: name for name, row in BROKER_CONFIGS.items() if row.topic_config
}
_BY_SETTING = {row.setting: name for name, row in BROKER_CONFIGS.items() if row.setting}


class ConfigSynonym(NamedTuple):
    """A value that a config has, or would have if those before it were removed."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config. The first of `synonyms` has its value."""

    name: str
    synonyms: list[ConfigSynonym]
    type: ConfigType
    doc: str
    read_only: bool

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


class ConfigAdmin:
    """The configs of topics, of this broker, and of all brokers together.

    `store_url` is shown to clients, so it must not contain credentials.
    """

    def __init__(
        self,
        node: Node,
        topics: TopicAdmin,
        settings: Settings,
        *,
        advertised: Address,
        store_url: str,
    ) -> None:
        self._node = node
        self._topics = topics
        self._settings = settings
        self._advertised = advertised
        self._store_url = store_url

    async def alter(
        self,
        resource_type: int,
        name: str,
        edits: Sequence[ConfigEdit],
        derive: Derive,
        changes: Changes | None,
    ) -> None:
        """Change the configs of a resource. Only checks the edits if `changes` is None.

        Raises an error if the resource does not exist, or its configs cannot be changed like this.
        """
        find = partial(self._target, resource_type, name)
        await change_configs(self._node.cluster, find, edits, derive, changes)

    def _target(self, resource_type: int, name: str) -> ConfigTarget:
        if _checked_type(resource_type) is ConfigResourceType.BROKER:
            return BrokerTarget(self._node, self._settings, self._node_named(name))
        topic = self._topics.find(name)
        check_not_internal(name, "changed")
        return TopicTarget(self._node, self._settings, topic)

    def describe(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """Return every config of a resource, sorted by name.

        Raises an error if the resource does not exist, or has no configs.
        """
        if _checked_type(resource_type) is ConfigResourceType.TOPIC:
            return self.topic_entries(self._topics.find(name).configs)
        if self._node_named(name) == ALL_NODES:
            return self._all_brokers_entries()
        return self._broker_entries()

    def _node_named(self, name: str) -> int:
        """Return the node that a broker resource names, or ALL_NODES."""
        own = self._node.node_id
        if name == ALL_BROKERS:
            return ALL_NODES
        if name != str(own):
            raise InvalidError(
                f"this is broker {own}: it has its own configs (resource name '{own}') and those "
                f"of all brokers (resource name {ALL_BROKERS!r}), not those of broker {name!r}"
            )
        return own

    def topic_entries(self, kept: Mapping[str, str]) -> list[ConfigEntry]:
        """Return every config of a topic that keeps these, sorted by name."""
        entries = []
        for name, about in sorted(CONFIGS.items()):
            synonyms = self._dynamic(_BY_TOPIC_CONFIG.get(name)) + self._topic_defaults(about)
            if name in kept:
                synonyms.insert(0, ConfigSynonym(name, kept[name], ConfigSource.DYNAMIC_TOPIC))
            entries.append(ConfigEntry(name, synonyms, _type_of(about), about.doc, read_only=False))
        return entries

    def _all_brokers_entries(self) -> list[ConfigEntry]:
        """Return the configs that were given for all brokers together."""
        given = self._node.cluster.state.broker_configs.get(ALL_NODES, {})
        entries = []
        for name, value in sorted(given.items()):
            synonyms = [ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
            about = BROKER_CONFIGS[name].about
            entries.append(ConfigEntry(name, synonyms, _type_of(about), about.doc, read_only=False))
        return entries

    def _broker_entries(self) -> list[ConfigEntry]:
        """Return every setting by Neve's name, and some by Kafka's.

        Those that can be changed while the broker runs have Kafka's names. All others are read
        when it starts.
        """
        entries = self._fixed_entries()
        for about in declared().values():
            if about.name not in BROKER_CONFIGS:
                synonyms = self._dynamic(_BY_SETTING.get(about.name)) + self._static(about)
                kind = _TYPES_OF_SETTINGS[about.kind]
                entries.append(ConfigEntry(about.name, synonyms, kind, about.doc, read_only=True))
        for name, row in BROKER_CONFIGS.items():
            if row.topic_config is not None:
                beneath = self._topic_defaults(CONFIGS[row.topic_config])
            else:
                assert row.setting is not None
                beneath = self._static(declared()[row.setting])
            synonyms = self._dynamic(name) + [each._replace(name=name) for each in beneath]
            kind = _type_of(row.about)
            entries.append(ConfigEntry(name, synonyms, kind, row.about.doc, read_only=False))
        return sorted(entries)

    def _fixed_entries(self) -> list[ConfigEntry]:
        """Return configs that Kafka's tools look for, and that cannot be changed."""
        host, port = self._advertised
        listener = f"PLAINTEXT://{host}:{port}"
        given: list[tuple[str, object, ConfigType, str]] = [
            ("advertised.listeners", listener, ConfigType.STRING, "see broker.advertise"),
            ("broker.id", self._node.node_id, ConfigType.INT, "see broker.node.id"),
            ("default.replication.factor", 1, ConfigType.INT, "the store replicates"),
            ("delete.topic.enable", True, ConfigType.BOOLEAN, "topics can be deleted"),
            (
                "log.cleanup.policy",
                "delete",
                ConfigType.LIST,
                "the default of a topic's cleanup.policy",
            ),
            ("log.dirs", self._store_url, ConfigType.STRING, "see broker.store"),
        ]
        return [
            ConfigEntry(
                name,
                [ConfigSynonym(name, _text(value), ConfigSource.STATIC_BROKER)],
                kind,
                doc,
                read_only=True,
            )
            for name, value, kind, doc in given
        ]

    def _dynamic(self, name: str | None) -> list[ConfigSynonym]:
        """Return the values given for a broker config at run time: for this broker, and for all."""
        kept = self._node.cluster.state.broker_configs
        return [
            ConfigSynonym(name, given[name], source)
            for node_id, source in (
                (self._node.node_id, ConfigSource.DYNAMIC_BROKER),
                (ALL_NODES, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            )
            if name is not None and name in (given := kept.get(node_id, {}))
        ]

    def _static(self, about: SettingDefinition) -> list[ConfigSynonym]:
        """Return a setting as the broker was started with it, and its default."""
        value = getattr(getattr(self._settings, about.group), about.field)
        synonyms = [ConfigSynonym(about.name, _text(about.default), ConfigSource.DEFAULT)]
        if value != about.default:
            text = masked(_text(value))
            synonyms.insert(0, ConfigSynonym(about.name, text, ConfigSource.STATIC_BROKER))
        return synonyms

    def _topic_defaults(self, about: ConfigDefinition) -> list[ConfigSynonym]:
        """Return the values of a topic config that is not given: a setting, and its default."""
        text, shipped = (
            default_text(about, segment) for segment in (self._settings.segment, SegmentSettings())
        )
        default = ConfigSynonym(about.name, shipped, ConfigSource.DEFAULT)
        if text == shipped:
            return [default]
        return [ConfigSynonym(about.name, text, ConfigSource.STATIC_BROKER), default]


def _checked_type(resource_type: int) -> ConfigResourceType:
    try:
        return ConfigResourceType(resource_type)
    except ValueError:
        known = " and ".join(f"{each.name.lower()}s ({each})" for each in ConfigResourceType)
        raise InvalidError(
            f"resources of type {resource_type} have no configs here: {known} have"
        ) from None


def _type_of(about: ConfigDefinition) -> ConfigType:
    return ConfigType[about.kind.upper()]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
