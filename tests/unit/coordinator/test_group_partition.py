"""Where a group belongs: Kafka's hash, to the number."""

from __future__ import annotations

import pytest

from neve.coordinator.group_partition import partition_of


@pytest.mark.parametrize(
    ("group_id", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-consumer-group", 1513705513),
        ("billing", 109829509),  # negative in Java
        ("readers-ünï", 411004160),
        ("polygenelubricants", 0),  # the one hash without a positive counterpart
        ("😀", 1772899),  # two UTF-16 units
    ],
)
def test_the_hash_is_java_s(group_id: str, hashed: int) -> None:
    assert partition_of(group_id, 2**31) == hashed
    assert partition_of(group_id, 50) == hashed % 50
