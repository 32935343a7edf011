"""Configs of topics and brokers as clients are shown them: value, type, where the value is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from neve.cluster.broker_config import BROKER_CONFIGS
from neve.cluster.records import ALL_NODES
from neve.cluster.topic_config import CONFIGS, ConfigDeclared, default_text
from neve.settings import SegmentSettings, Settings, declared
from neve.settings.declare import Declared
from neve.settings.masking import masked

if TYPE_CHECKING:
    from neve.broker.broker import Broker

# Kafka's numbers for where a value comes from.
OF_TOPIC, OF_NODE, OF_ALL_NODES, OF_BROKER, DEFAULT = 1, 2, 3, 4, 5
# Kafka's numbers for types, by its own names and by Python's.
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_TYPES |= {"bool": 1, "str": 2, "float": 6}
# What Kafka calls a broker config that can be changed, by the topic config or setting it is for.
_NAMES = {row.topic_config: name for name, row in BROKER_CONFIGS.items() if row.topic_config}
_ALIASES = {row.setting: name for name, row in BROKER_CONFIGS.items() if row.setting}


class Origin(NamedTuple):
    """A value that a config has, or would have if one before it were taken away."""

    name: str
    value: str
    source: int


class ConfigRow(NamedTuple):
    """One config. `origins` begins with the value that counts."""

    name: str
    origins: list[Origin]
    kind: int
    doc: str
    read_only: bool

    @property
    def value(self) -> str:
        return self.origins[0].value

    @property
    def source(self) -> int:
        return self.origins[0].source


def topic_rows(configs: Mapping[str, str], broker: Broker) -> list[ConfigRow]:
    """Every config of a topic that keeps these, by name."""
    rows = []
    for name, about in sorted(CONFIGS.items()):
        origins = [Origin(name, configs[name], OF_TOPIC)] if name in configs else []
        origins += _changed(broker, _NAMES.get(name)) + _defaults(about, broker.settings)
        rows.append(ConfigRow(name, origins, _TYPES[about.kind], about.doc, read_only=False))
    return rows


def _changed(broker: Broker, name: str | None) -> list[Origin]:
    """What was given for a broker config while brokers ran: for this one, and for all."""
    kept = broker.node.cluster.state.broker_configs
    return [
        Origin(name, given[name], source)
        for node_id, source in ((broker.node_id, OF_NODE), (ALL_NODES, OF_ALL_NODES))
        if name is not None and name in (given := kept.get(node_id, {}))
    ]


def _defaults(about: ConfigDeclared, settings: Settings) -> list[Origin]:
    """What counts where a topic says nothing: a broker's setting, and below it the default."""
    as_set = Origin(about.name, default_text(about, settings.segment), OF_BROKER)
    as_shipped = Origin(about.name, default_text(about, SegmentSettings()), DEFAULT)
    return [as_shipped] if as_set.value == as_shipped.value else [as_set, as_shipped]


def all_brokers_rows(broker: Broker) -> list[ConfigRow]:
    """What was given for all brokers together."""
    given = broker.node.cluster.state.broker_configs.get(ALL_NODES, {})
    rows = []
    for name, value in sorted(given.items()):
        origins = [Origin(name, value, OF_ALL_NODES)]
        about = BROKER_CONFIGS[name].about
        rows.append(ConfigRow(name, origins, _TYPES[about.kind], about.doc, read_only=False))
    return rows


def broker_rows(broker: Broker) -> list[ConfigRow]:
    """Every setting of a broker by Neve's name, and some by Kafka's.

    All are read when it starts but those that can be changed, by Kafka's names.
    """
    rows = []
    for about in declared().values():
        if about.name not in BROKER_CONFIGS:
            origins = _changed(broker, _ALIASES.get(about.name)) + _as_set(about, broker.settings)
            kind = _TYPES["long" if about.kind is int else about.kind.__name__]
            rows.append(ConfigRow(about.name, origins, kind, about.doc, read_only=True))
    for name, row in BROKER_CONFIGS.items():
        if row.topic_config is not None:
            beneath = _defaults(CONFIGS[row.topic_config], broker.settings)
        else:
            assert row.setting is not None
            beneath = _as_set(declared()[row.setting], broker.settings)
        origins = _changed(broker, name) + [each._replace(name=name) for each in beneath]
        kind = _TYPES[row.about.kind]
        rows.append(ConfigRow(name, origins, kind, row.about.doc, read_only=False))
    return sorted(rows + _fixed_rows(broker))


def _as_set(about: Declared, settings: Settings) -> list[Origin]:
    """A setting as the broker was started with it, and its default."""
    value = getattr(getattr(settings, about.group), about.field)
    origins = [Origin(about.name, _text(about.default), DEFAULT)]
    if value != about.default:
        origins.insert(0, Origin(about.name, masked(_text(value)), OF_BROKER))
    return origins


def _fixed_rows(broker: Broker) -> list[ConfigRow]:
    """What tools look for, and cannot be changed while a broker runs."""
    host, port = broker.advertised
    given: list[tuple[str, object, str, str]] = [
        ("advertised.listeners", f"PLAINTEXT://{host}:{port}", "string", "see broker.advertise"),
        ("broker.id", broker.node_id, "int", "see broker.node.id"),
        ("default.replication.factor", 1, "int", "the store replicates"),
        ("delete.topic.enable", True, "boolean", "topics can be deleted"),
        ("log.cleanup.policy", "delete", "list", "the default of a topic's cleanup.policy"),
        ("log.dirs", broker.store_url, "string", "see broker.store"),
    ]
    return [
        ConfigRow(name, [Origin(name, _text(value), OF_BROKER)], _TYPES[kind], doc, read_only=True)
        for name, value, kind, doc in given
    ]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
