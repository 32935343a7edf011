"""The tree of all setting groups."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from neve.settings.cluster import ClusterSettings, MaintenanceSettings
from neve.settings.declare import SettingDefinition
from neve.settings.fetching import FetchSettings
from neve.settings.groups import GroupSettings
from neve.settings.serving import BrokerSettings, HttpSettings, LogSettings, TopicSettings
from neve.settings.storage import (
    CacheSettings,
    PrefetchSettings,
    ProducerSettings,
    ReaderSettings,
    SegmentSettings,
    StoreSettings,
    WalSettings,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, by group."""

    store: StoreSettings = dataclasses.field(default_factory=StoreSettings)
    wal: WalSettings = dataclasses.field(default_factory=WalSettings)
    segment: SegmentSettings = dataclasses.field(default_factory=SegmentSettings)
    producers: ProducerSettings = dataclasses.field(default_factory=ProducerSettings)
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)
    prefetch: PrefetchSettings = dataclasses.field(default_factory=PrefetchSettings)
    reader: ReaderSettings = dataclasses.field(default_factory=ReaderSettings)
    fetch: FetchSettings = dataclasses.field(default_factory=FetchSettings)
    broker: BrokerSettings = dataclasses.field(default_factory=BrokerSettings)
    cluster: ClusterSettings = dataclasses.field(default_factory=ClusterSettings)
    maintenance: MaintenanceSettings = dataclasses.field(default_factory=MaintenanceSettings)
    topics: TopicSettings = dataclasses.field(default_factory=TopicSettings)
    groups: GroupSettings = dataclasses.field(default_factory=GroupSettings)
    http: HttpSettings = dataclasses.field(default_factory=HttpSettings)
    logs: LogSettings = dataclasses.field(default_factory=LogSettings)
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """Names of the settings that a file, the environment or a flag gave."""


GROUPS: dict[str, type[Any]] = {
    "store": StoreSettings,
    "wal": WalSettings,
    "segment": SegmentSettings,
    "producers": ProducerSettings,
    "cache": CacheSettings,
    "prefetch": PrefetchSettings,
    "reader": ReaderSettings,
    "fetch": FetchSettings,
    "broker": BrokerSettings,
    "cluster": ClusterSettings,
    "maintenance": MaintenanceSettings,
    "topics": TopicSettings,
    "groups": GroupSettings,
    "http": HttpSettings,
    "logs": LogSettings,
}


def declared() -> dict[str, SettingDefinition]:
    """Return every setting by name, in the order of the tree."""
    found: dict[str, SettingDefinition] = {}
    for group, cls in GROUPS.items():
        for field in dataclasses.fields(cls):
            meta = field.metadata
            found[meta["name"]] = SettingDefinition(
                meta["name"],
                group,
                field.name,
                type(field.default),
                field.default,
                meta["doc"],
                meta["minimum"],
                meta["maximum"],
                meta["choices"],
            )
    return found
