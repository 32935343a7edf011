"""All settings: name, type, default, bounds and description, each declared once.

The settings form small frozen groups, so that a component receives only the group it uses. The
sources, in ascending precedence: defaults, a TOML file, the environment (`NEVE_WAL_LINGER_MS` for
`wal.linger.ms`) and flags. An unknown name or an invalid value raises InvalidError.
docs/operators/settings.md is compared with these declarations by a test.

`storage`, `fetching`, `cluster`, `groups` and `serving` declare the groups with `declare.setting`;
`tree` collects the groups; `loading` reads the sources; `memory` divides a broker's memory.
"""

from neve.settings.cluster import ClusterSettings, MaintenanceSettings
from neve.settings.declare import (
    COMMAND_VARIABLES,
    GIB,
    KIB,
    MIB,
    VARIABLE_PREFIX,
    SettingDefinition,
    setting,
)
from neve.settings.fetching import FetchSettings
from neve.settings.groups import GroupSettings
from neve.settings.loading import load
from neve.settings.memory import PARTITION_BYTES, check_memory, spare_bytes
from neve.settings.serving import BrokerSettings, HttpSettings, LogSettings, TopicSettings
from neve.settings.storage import (
    CacheSettings,
    PrefetchSettings,
    ProducerSettings,
    ReaderSettings,
    SegmentSettings,
    StoreSettings,
    WalSettings,
    check_endpoint,
)
from neve.settings.tree import Settings, declared

__all__ = [
    "COMMAND_VARIABLES",
    "GIB",
    "KIB",
    "MIB",
    "PARTITION_BYTES",
    "VARIABLE_PREFIX",
    "BrokerSettings",
    "CacheSettings",
    "ClusterSettings",
    "FetchSettings",
    "GroupSettings",
    "HttpSettings",
    "LogSettings",
    "MaintenanceSettings",
    "PrefetchSettings",
    "ProducerSettings",
    "ReaderSettings",
    "SegmentSettings",
    "SettingDefinition",
    "Settings",
    "StoreSettings",
    "TopicSettings",
    "WalSettings",
    "check_endpoint",
    "check_memory",
    "declared",
    "load",
    "setting",
    "spare_bytes",
]
