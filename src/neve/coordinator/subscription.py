"""Which topics a consumer subscribes to, read from the metadata that it joins with.

The coordinator passes that metadata on untouched. It looks inside for this alone, and only at what
every version of the consumer protocol begins with: a version and the topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL = "consumer"
_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None where this is not a consumer's metadata."""
    topics: list[str] = []
    try:
        _, count = _HEAD.unpack_from(metadata, 0)
        position = _HEAD.size
        if not 0 <= count <= (len(metadata) - position) // _LENGTH.size:
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def all_subscribed(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None as soon as one of them cannot be read."""
    together: frozenset[str] = frozenset()
    for each in metadata:
        topics = subscribed_topics(each)
        if topics is None:
            return None
        together |= topics
    return together
