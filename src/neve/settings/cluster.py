"""The settings of a cluster's metadata, and of what a broker does in the background."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings.declare import MIB, setting


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The cluster log: how often it is looked at, and how much it may hold."""

    poll_ms: int = setting(
        "cluster.poll.ms",
        5_000,
        "how often a broker looks whether it was superseded and what others have changed",
        least=10,
    )
    partitions_max: int = setting(
        "cluster.partitions.max",
        5_000,
        "partitions of all topics together, 6 KiB of memory each; what would exceed it is not "
        "created",
        least=1,
        most=1_000_000,
    )
    topic_partitions_max: int = setting(
        "cluster.topic.partitions.max",
        10_000,
        "partitions of one topic; what would exceed it is not created",
        least=1,
        most=100_000,
    )
    purge_delay_ms: int = setting(
        "cluster.purge.delay.ms",
        600_000,
        "a deleted topic is swept again so long after its objects were deleted, then forgotten; "
        "no tiering of one segment may take longer than half of it",
        least=2,
    )


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings:
    """What a broker does in the background."""

    interval_ms: int = setting(
        "maintenance.interval.ms",
        1_000,
        "how often a broker sees to what is not due at once: deleting the objects of deleted "
        "topics, letting go of old streams, making up for what failed",
        least=10,
    )
    gc_interval_ms: int = setting(
        "maintenance.gc.interval.ms",
        60_000,
        "how often doomed objects and retired streams are deleted",
        least=10,
    )
    retention_check_ms: int = setting(
        "retention.check.ms",
        300_000,
        "a log's start is moved at most so often; what arrives expired is kept as long",
        least=10,
    )
    tiering_concurrency: int = setting(
        "tiering.concurrency",
        2,
        "partitions tiered at once, as far as tiering.memory.bytes goes",
        least=1,
        most=64,
    )
    tiering_memory_bytes: int = setting(
        "tiering.memory.bytes",
        128 * MIB,
        "what segments being built may take up, each twice its size; a larger one is built alone",
        least=0,
    )
