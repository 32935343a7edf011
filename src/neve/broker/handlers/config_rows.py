"""Configs of topics and brokers as clients are shown them: value, type, where the value is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from neve.cluster.topic_config import CONFIGS, ConfigDeclared, default_text
from neve.settings import SegmentSettings, Settings, declared

if TYPE_CHECKING:
    from neve.broker.broker import Broker

# Kafka's numbers for where a value comes from.
OF_TOPIC, OF_BROKER, DEFAULT = 1, 4, 5
# Kafka's numbers for types, by its own names and by Python's.
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_TYPES |= {"bool": 1, "str": 2, "float": 6}
# What Kafka calls a broker's default of a topic config, where tools are known to look for it.
_BROKER_NAMES = {
    "log.cleanup.policy": "cleanup.policy",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
}


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


def topic_rows(configs: Mapping[str, str], settings: Settings) -> list[ConfigRow]:
    """Every config of a topic that keeps these, by name."""
    rows = []
    for name, about in sorted(CONFIGS.items()):
        origins = [Origin(name, configs[name], OF_TOPIC)] if name in configs else []
        origins += _defaults(about, settings)
        rows.append(ConfigRow(name, origins, _TYPES[about.kind], about.doc, read_only=False))
    return rows


def _defaults(about: ConfigDeclared, settings: Settings) -> list[Origin]:
    """What counts where a topic says nothing: a broker's setting, and below it the default."""
    as_set = Origin(about.name, default_text(about, settings.segment), OF_BROKER)
    as_shipped = Origin(about.name, default_text(about, SegmentSettings()), DEFAULT)
    return [as_shipped] if as_set.value == as_shipped.value else [as_set, as_shipped]


def broker_rows(broker: Broker) -> list[ConfigRow]:
    """Every setting of a broker by Neve's name, and some by Kafka's. All are read at its start."""
    settings = broker.settings
    rows = []
    for about in declared().values():
        value = getattr(getattr(settings, about.group), about.field)
        origins = [Origin(about.name, _text(about.default), DEFAULT)]
        if value != about.default:
            origins.insert(0, Origin(about.name, _text(value), OF_BROKER))
        kind = _TYPES["long" if about.kind is int else about.kind.__name__]
        rows.append(ConfigRow(about.name, origins, kind, about.doc, read_only=True))
    return sorted(rows + _kafka_rows(broker))


def _kafka_rows(broker: Broker) -> list[ConfigRow]:
    settings = broker.settings
    rows = []
    for name, topic_name in _BROKER_NAMES.items():
        about = CONFIGS[topic_name]
        origins = [each._replace(name=name) for each in _defaults(about, settings)]
        doc = f"the default of a topic's {topic_name}"
        rows.append(ConfigRow(name, origins, _TYPES[about.kind], doc, read_only=True))
    host, port = broker.advertised
    given: list[tuple[str, object, str, str]] = [
        ("advertised.listeners", f"PLAINTEXT://{host}:{port}", "string", "see broker.advertise"),
        ("auto.create.topics.enable", settings.topics.auto_create, "boolean", "topics.auto.create"),
        ("broker.id", broker.node_id, "int", "see broker.node.id"),
        ("default.replication.factor", 1, "int", "the store replicates"),
        ("delete.topic.enable", True, "boolean", "topics can be deleted"),
        ("log.dirs", broker.store_url, "string", "see broker.store"),
        ("num.partitions", settings.topics.default_partitions, "int", "topics.default.partitions"),
    ]
    rows += [
        ConfigRow(name, [Origin(name, _text(value), OF_BROKER)], _TYPES[kind], doc, read_only=True)
        for name, value, kind, doc in given
    ]
    return rows


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
