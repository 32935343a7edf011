"""Reads KafScale's own files: its key layout, and the `.kfst` files of a back-fill.

A `.kfs` is complete by itself. Its index files `.index` and `.kfst` may be missing or damaged; one
without its segment is a stray and is only reported.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from neve.errors import DamagedError, UnsupportedError

TIMES_MAGIC = b"KFTF"
TIMES_VERSION = 1
SUFFIXES = ("kfs", "index", "kfst")

_TIMES = struct.Struct(">4sIqqqq")
TIMES_BYTES = _TIMES.size
_KEY = re.compile(
    r"(?:(.+)/)?([^/]+)/(0|[1-9][0-9]{0,9})/segment-([0-9]{20})\.(kfs|index|kfst)", re.DOTALL
)
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


class ForeignName(NamedTuple):
    """The segment that a key belongs to. The namespace may have several parts, or be empty."""

    namespace: str
    topic: str
    partition: int
    base_offset: int


class ForeignSegment(NamedTuple):
    """A segment of a KafScale bucket with the keys of its index files."""

    name: ForeignName
    key: str
    segment_bytes: int
    index_key: str | None
    times_key: str | None


class ForeignListing(NamedTuple):
    """Segments by name, and the keys of indexes and `.kfst` files that have no segment."""

    segments: list[ForeignSegment]
    strays: list[str]


class TimeRange(NamedTuple):
    """The content of a `.kfst`. It has no checksum, so it may only be used to plan reads."""

    min_timestamp: int
    max_timestamp: int
    min_offset: int
    max_offset: int


def format_key(name: ForeignName, suffix: str) -> str:
    namespace = f"{name.namespace}/" if name.namespace else ""
    return f"{namespace}{name.topic}/{name.partition}/segment-{name.base_offset:020d}.{suffix}"


def parse_key(key: str) -> tuple[ForeignName, str] | None:
    """Return the name and suffix in a key; None for other keys."""
    found = _KEY.fullmatch(key)
    if found is None or int(found[3]) > _PARTITION_MAX or int(found[4]) > _OFFSET_MAX:
        return None
    return ForeignName(found[1] or "", found[2], int(found[3]), int(found[4])), found[5]


def group_listing(listing: Iterable[tuple[str, int]]) -> ForeignListing:
    """Group listed keys and sizes by segment. Ignores other keys."""
    found: dict[ForeignName, dict[str, tuple[str, int]]] = {}
    for key, size in listing:
        parsed = parse_key(key)
        if parsed is not None:
            name, suffix = parsed
            found.setdefault(name, {})[suffix] = (key, size)
    segments: list[ForeignSegment] = []
    strays: list[str] = []
    for name, files in sorted(found.items()):
        if "kfs" not in files:
            strays.extend(sorted(key for key, _ in files.values()))
            continue
        keys = {suffix: key for suffix, (key, _) in files.items()}
        segments.append(ForeignSegment(name, *files["kfs"], keys.get("index"), keys.get("kfst")))
    return ForeignListing(segments, strays)


def decode_times(data: bytes | bytearray | memoryview, key: str) -> TimeRange:
    """Decode a `.kfst`, and check it as far as its format allows."""
    if len(data) != TIMES_BYTES:
        raise DamagedError(key, f"{len(data)} bytes where a .kfst has {TIMES_BYTES}")
    magic, version, *fields = _TIMES.unpack(data)
    if magic != TIMES_MAGIC:
        raise DamagedError(key, f"it starts with {magic!r}, not {TIMES_MAGIC!r}")
    if version > TIMES_VERSION:
        raise UnsupportedError(f"{key} is a .kfst of version {version}: upgrade to read it")
    found = TimeRange._make(fields)
    if (
        version != TIMES_VERSION
        or found.min_timestamp > found.max_timestamp
        or not 0 <= found.min_offset <= found.max_offset
    ):
        raise DamagedError(key, f"version {version} with {found}")
    return found
