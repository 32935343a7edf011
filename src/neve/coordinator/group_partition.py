"""The partition of the internal topic to which a group belongs."""

from __future__ import annotations


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group, as Kafka computes it.

    It is the absolute value of Java's `hashCode` of the name (over UTF-16 units), modulo the count.
    """
    hashed = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        hashed = (31 * hashed + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    if hashed >= 0x80000000:
        hashed = 0x100000000 - hashed
    # -2**31 has no positive counterpart in Java. Kafka uses 0 instead.
    return 0 if hashed == 0x80000000 else hashed % partitions
