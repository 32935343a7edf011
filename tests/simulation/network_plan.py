"""What a run of a whole cluster on the simulated network consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neve.settings import (
    ClusterSettings,
    GroupSettings,
    MaintenanceSettings,
    SegmentSettings,
    Settings,
    StoreSettings,
    WalSettings,
)
from neve.store.faults import Faults, Latencies, Latency

SETTINGS = Settings(
    store=StoreSettings(
        request_timeout_ms=400,
        retry_attempts_max=2,
        retry_base_ms=5,
        retry_cap_ms=40,
        denied_grace_ms=500,
    ),
    wal=WalSettings(linger_ms=0, inflight_max=4, tail_objects=24, tail_bytes=12 * 1024),
    segment=SegmentSettings(bytes=3 * 1024, ms=4_000, checkpoint_numbers=4, index_interval=10),
    cluster=ClusterSettings(
        poll_ms=2_000,
        session_ms=3_000,
        heartbeat_ms=500,
        rebalance_delay_ms=3_000,
        follow_ms=1_000,
        follow_lag_ms=6_000,
        purge_delay_ms=4_000,
    ),
    maintenance=MaintenanceSettings(interval_ms=500, gc_interval_ms=1_500),
    groups=GroupSettings(partitions=3, initial_rebalance_delay_ms=100),
)
LATENCIES = Latencies.of(write=Latency(8, 60), read=Latency(4, 30))
SLOW_LATENCIES = Latencies.of(write=Latency(120, 390), read=Latency(60, 390))
FAULTS = Faults(
    fails=0.01,
    slow_down=0.005,
    fails_after_effect=0.005,
    lands_late=0.005,
    conflict=0.003,
    conflict_after_effect=0.005,
    refused=0.003,
    delete_lands_late=0.003,
    answers_late=0.005,
    late_ms_max=2_000,
)
NETWORK_EVENTS = ("cut", "isolate", "shun", "store cut", "slow link")
PROCESS_EVENTS = ("crash", "crash behind a gap", "pause", "stop", "clock")
CLUSTER_EVENTS = ("drain", "hinder release", "expire", "expire unheard", "join", "leave")
ADMIN_EVENTS = ("reassign", "delete a topic")
WAL_STORE_EVENTS = ("WAL store cut",)  # for plans with WAL stores
STORE_EVENTS = ("store slow", "store odd", "store denied", "store full", "cluster log slow")
READ_FROM_FOLLOWER = "read from a follower"
TOPIC_PURGED = "topic purged"
ALL_OPERATIONS = (
    READ_FROM_FOLLOWER,
    "end answered",
    "generation joined",
    "offset committed",
    "committed offsets answered",
    "topic created",
    "topic grown",
    "topic deleted",
    TOPIC_PURGED,
)
ALL_FAULTS = (
    "fails",
    "hangs",
    "slow_down",
    "fails_after_effect",
    "hangs_after_effect",
    "lands_late",
    "conflict",
    "conflict_after_effect",
    "refused",
    "answers_late",
    "denied",
    "full",
    "delete_lands_late",
)
ALL_EVENTS = (
    *NETWORK_EVENTS,
    *PROCESS_EVENTS,
    *CLUSTER_EVENTS,
    *ADMIN_EVENTS,
    *STORE_EVENTS,
)


@dataclass(frozen=True)
class Plan:
    """How much of everything happens."""

    brokers: int = 3
    brokers_max: int = 5  # with those that join later
    partitions: int = 6
    producers: int = 4
    batches: int = 150  # of each producer
    near: int = 2  # consumers in the rack of a broker, which read from followers
    groups: int = 2
    members: int = 2  # of each group
    has_topic_churn: bool = True  # topics are created, grown and deleted
    troublemakers: int = 2  # that cause one event after the other
    calm_seconds: float = 4.0  # between two events of one of them, at most
    chaos: Sequence[str] = ALL_EVENTS
    faults: Faults = FAULTS
    latencies: Latencies = LATENCIES
    slow_latencies: Latencies = SLOW_LATENCIES
    settings: Settings = SETTINGS
    wal_stores: bool = False  # each rack has its WAL in a store of its own, on a host of its own


@dataclass
class Report:
    """What a run amounted to."""

    operations: int = 0  # that brokers answered
    acknowledged: int = 0
    refused: int = 0
    starts: int = 0
    faults: int = 0
    epochs: int = 0
    jumps: int = 0  # over what was trimmed of the cluster log
    counts: dict[str, int] = field(default_factory=dict)
    """How often each event, each fault of a store and each operation occurred."""

    def note(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times
