"""Settings of consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import InvalidError
from neve.settings.declare import KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Limits and timeouts of consumer groups and their offsets."""

    partitions: int = setting(
        "groups.partitions",
        8,
        "Number of partitions of the internal topic of groups and offsets. Fixed when the topic"
        " is created.",
        minimum=1,
        maximum=1024,
    )
    groups_max: int = setting(
        "groups.max",
        100_000,
        "Maximum number of groups per broker. Beyond it, requests to create a group are rejected.",
        minimum=1,
    )
    all_metadata_bytes_max: int = setting(
        "groups.metadata.max.bytes",
        16 * MIB,
        "Memory for groups of one broker: the members' metadata and assignments, 1 KiB per "
        "member and 1.5 KiB per group. Beyond it, joins that need more and new groups are "
        "rejected.",
        minimum=64 * KIB,
    )
    offsets_memory_bytes: int = setting(
        "offsets.memory.bytes",
        16 * MIB,
        "Memory for the committed offsets of one broker: 512 bytes each and twice their text. "
        "Beyond it, commits that need more are rejected with INVALID_COMMIT_OFFSET_SIZE.",
        minimum=64 * KIB,
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        250,
        "How long an empty group waits for more members before its first generation.",
        minimum=0,
    )
    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6_000,
        "Minimum session timeout that a member may request.",
        minimum=1,
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "Maximum session timeout that a member may request.",
        minimum=6_000,
    )
    size_max: int = setting(
        "group.max.size", 10_000, "Maximum number of members of one group.", minimum=1
    )
    metadata_bytes_max: int = setting(
        "group.metadata.max.bytes",
        8 * MIB,
        "Maximum size of the metadata and assignments of all members of one group.",
        minimum=1024,
    )
    offset_metadata_bytes_max: int = setting(
        "offset.metadata.max.bytes",
        4_096,
        "Maximum size of the text that a client may store with a committed offset.",
        minimum=0,
    )
    offsets_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5_000,
        "Timeout of offset commits, offset fetches and assignments that wait for the store; the"
        " client gets a retriable error. Keep it below the members' session timeouts: "
        "heartbeats on the same connection wait behind it.",
        minimum=1,
    )
    offsets_retention_ms: int = setting(
        "offsets.retention.ms",
        604_800_000,
        "Delete the offsets of a group that has had no members for this time.",
        minimum=1,
    )
    offsets_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often the broker looks for expired offsets and groups.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise InvalidError(
                f"group.min.session.timeout.ms ({self.min_session_timeout_ms}) exceeds "
                f"group.max.session.timeout.ms ({self.max_session_timeout_ms}): lower the former "
                "or raise the latter"
            )
