"""Every setting once: its name, type, default, bounds and reason.

The tree is made of small frozen groups, so that a component is handed only what it uses. Values
come, weakest first, from the defaults, a TOML file, the environment (`NEVE_WAL_LINGER_MS` for
`wal.linger.ms`) and flags. An unknown name or a bad value is refused by name, wherever it stood.
docs/operators/settings.md is compared with these declarations by a test.

`storage`, `fetching`, `cluster`, `groups` and `serving` declare the groups with `declare.setting`;
`tree` names them all; `loading` reads the sources; `memory` divides a broker's bound.
"""

from neve.settings.cluster import ClusterSettings, MaintenanceSettings
from neve.settings.declare import (
    COMMAND_VARIABLES,
    GIB,
    KIB,
    MIB,
    VARIABLE_PREFIX,
    Declared,
    setting,
)
from neve.settings.fetching import FetchSettings
from neve.settings.groups import GroupSettings
from neve.settings.loading import load
from neve.settings.memory import COPIES_OF_A_SEGMENT, PARTITION_BYTES, refuse_too_much, spare_bytes
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
    "COPIES_OF_A_SEGMENT",
    "GIB",
    "KIB",
    "MIB",
    "PARTITION_BYTES",
    "VARIABLE_PREFIX",
    "BrokerSettings",
    "CacheSettings",
    "ClusterSettings",
    "Declared",
    "FetchSettings",
    "GroupSettings",
    "HttpSettings",
    "LogSettings",
    "MaintenanceSettings",
    "PrefetchSettings",
    "ProducerSettings",
    "ReaderSettings",
    "SegmentSettings",
    "Settings",
    "StoreSettings",
    "TopicSettings",
    "WalSettings",
    "check_endpoint",
    "declared",
    "load",
    "refuse_too_much",
    "setting",
    "spare_bytes",
]
