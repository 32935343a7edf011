"""The settings of consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import InvalidError
from neve.settings.declare import KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """What groups may take up, and how long members and offsets last."""

    partitions: int = setting(
        "groups.partitions",
        8,
        "partitions of the internal topic that groups are spread over; fixed when it is created",
        least=1,
        most=1024,
    )
    groups_max: int = setting(
        "groups.max", 100_000, "groups that one broker keeps; beyond it, no new one starts", least=1
    )
    all_metadata_bytes_max: int = setting(
        "groups.metadata.max.bytes",
        16 * MIB,
        "what the members of all groups of one broker join with and are assigned, and 1 KiB for "
        "each, and 1.5 KiB for each group; beyond it, none joins with more, and no group starts",
        least=64 * KIB,
    )
    offsets_memory_bytes: int = setting(
        "offsets.memory.bytes",
        16 * MIB,
        "committed offsets of all groups of one broker, 512 bytes and twice their texts for each; "
        "beyond it, commits that need more are refused with INVALID_COMMIT_OFFSET_SIZE",
        least=64 * KIB,
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        250,
        "an empty group waits this long for further members before its first generation",
        least=0,
    )
    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", 6_000, "shortest session that a member may ask for", least=1
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "longest session that a member may ask for",
        least=6_000,
    )
    size_max: int = setting("group.max.size", 10_000, "members of one group", least=1)
    metadata_bytes_max: int = setting(
        "group.metadata.max.bytes",
        8 * MIB,
        "what the members of one group join with and are assigned, all together",
        least=1024,
    )
    offset_metadata_bytes_max: int = setting(
        "offset.metadata.max.bytes",
        4_096,
        "text that a client may keep with a committed offset",
        least=0,
    )
    offsets_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5_000,
        "a commit or a fetch of offsets, or a member's assignment, that waits longer for the store "
        "is answered with an error to try again; heartbeats on the same connection are answered "
        "behind it, so keep it below the members' sessions",
        least=1,
    )
    offsets_retention_ms: int = setting(
        "offsets.retention.ms",
        604_800_000,
        "offsets of a group without members are dropped after so long",
        least=1,
    )
    offsets_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "pause between two looks for offsets and groups to drop",
        least=1,
    )

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise InvalidError(
                f"group.min.session.timeout.ms is {self.min_session_timeout_ms}, more than "
                f"group.max.session.timeout.ms ({self.max_session_timeout_ms}): lower the one or "
                "raise the other"
            )
