"""The topics to which a consumer subscribes, from the metadata with which it joins.

The coordinator forwards this metadata unchanged. It decodes only the fields with which every
version of the consumer protocol begins: the version and the topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL = "consumer"
_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics; None if this is not the metadata of a consumer."""
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
    """Return the topics of all members; None if the metadata of any of them cannot be decoded."""
    together: frozenset[str] = frozenset()
    for each in metadata:
        topics = subscribed_topics(each)
        if topics is None:
            return None
        together |= topics
    return together
