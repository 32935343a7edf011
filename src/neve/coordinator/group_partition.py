"""Which partition of the internal topic a group belongs to."""

from __future__ import annotations


def partition_of(group_id: str, partitions: int) -> int:
    """Kafka's choice: Java's hash of the name, over UTF-16 units, without its sign."""
    hashed = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        hashed = (31 * hashed + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    if hashed >= 0x80000000:
        hashed = 0x100000000 - hashed
    # The one number without a positive counterpart counts as 0.
    return 0 if hashed == 0x80000000 else hashed % partitions
