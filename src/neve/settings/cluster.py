"""Settings of the cluster's metadata and of a broker's background maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import InvalidError
from neve.settings.declare import MIB, setting

# A heartbeat that is due now, one that was delayed as long, and time for an observer to look.
SESSION_HEARTBEATS_MIN = 3


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The cluster log: how often it is polled, and its limits; failure detection."""

    poll_ms: int = setting(
        "cluster.poll.ms",
        5_000,
        "How often a broker polls the cluster log for changes and checks that it is not "
        "superseded. A twelfth as often while other brokers send it their positions.",
        minimum=10,
    )
    rebalance_delay_ms: int = setting(
        "cluster.rebalance.delay.ms",
        10_000,
        "How long after a broker has joined or gone the others wait before they move partitions to "
        "balance the load.",
        minimum=0,
    )
    session_ms: int = setting(
        "cluster.session.ms",
        6_000,
        "A broker that answers no ping and writes no heartbeat for this time is declared dead. At "
        "least 3 times cluster.heartbeat.ms.",
        minimum=500,
    )
    heartbeat_ms: int = setting(
        "cluster.heartbeat.ms",
        1_000,
        "How often a broker is pinged by its watchers. A broker that they do not reach writes its "
        "heartbeat to the bucket as often.",
        minimum=50,
    )
    watchers: int = setting(
        "cluster.watchers",
        3,
        "Number of brokers that watch each broker. The same for all brokers.",
        minimum=1,
        maximum=16,
    )
    followers: int = setting(
        "cluster.followers",
        2,
        "Number of brokers that follow each broker: they read its stream from the bucket, serve "
        "its partitions to consumers of their racks, and take over from it. The same for all "
        "brokers.",
        minimum=0,
        maximum=16,
    )
    follow_ms: int = setting(
        "cluster.follow.ms",
        2_000,
        "A follower that has heard nothing from the leader for this time looks in the bucket for "
        "the next object. A leader with nothing new notifies its followers twice as often.",
        minimum=20,
    )
    follow_lag_ms: int = setting(
        "cluster.follow.lag.ms",
        30_000,
        "A follower that has not caught up for this time is shown as not in sync, and serves no "
        "consumers.",
        minimum=100,
    )
    partitions_max: int = setting(
        "cluster.partitions.max",
        5_000,
        "Maximum number of partitions of all topics, 6 KiB of memory each. Requests to create "
        "more are rejected.",
        minimum=1,
        maximum=1_000_000,
    )
    topic_partitions_max: int = setting(
        "cluster.topic.partitions.max",
        10_000,
        "Maximum number of partitions of one topic. Requests to create more are rejected.",
        minimum=1,
        maximum=100_000,
    )
    purge_delay_ms: int = setting(
        "cluster.purge.delay.ms",
        600_000,
        "Delay before the objects of a deleted topic are listed and deleted a second time; then"
        " the topic is forgotten. Tiering one segment must take less than half of it.",
        minimum=2,
    )

    def __post_init__(self) -> None:
        if self.session_ms < SESSION_HEARTBEATS_MIN * self.heartbeat_ms:
            raise InvalidError(
                f"cluster.session.ms ({self.session_ms}) is less than {SESSION_HEARTBEATS_MIN} "
                f"times cluster.heartbeat.ms ({self.heartbeat_ms}): raise the former or lower the "
                "latter"
            )


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings:
    """A broker's background work: garbage collection, retention and tiering."""

    interval_ms: int = setting(
        "maintenance.interval.ms",
        1_000,
        "How often a broker does background work that is not urgent: deletes the objects of "
        "deleted topics, releases old streams, retries what failed.",
        minimum=10,
    )
    gc_interval_ms: int = setting(
        "maintenance.gc.interval.ms",
        60_000,
        "How often doomed objects and retired streams are deleted.",
        minimum=10,
    )
    retention_check_ms: int = setting(
        "retention.check.ms",
        300_000,
        "Minimum time between two retention checks of a partition. Records that arrive expired "
        "are kept this long.",
        minimum=10,
    )
    tiering_concurrency: int = setting(
        "tiering.concurrency",
        2,
        "Maximum number of partitions tiered concurrently, within tiering.memory.bytes.",
        minimum=1,
        maximum=64,
    )
    tiering_memory_bytes: int = setting(
        "tiering.memory.bytes",
        128 * MIB,
        "Memory for segments under construction: for each, its size and that of the slices that "
        "are read for it. A larger segment is built alone.",
        minimum=0,
    )
