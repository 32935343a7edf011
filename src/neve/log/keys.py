"""Formats and parses all keys of a bucket. No other module does.

Keys are flat and their numbers have a fixed width, so that sorting keys sorts numbers and no key is
the folder of another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from neve import runtime

NUMBER_DIGITS = 20
# Parts of a path are limited to 255 bytes, and a topic's name may have 249. Keys contain the start
# of the name for people; the id distinguishes topics.
TOPIC_NAME_SHOWN = 200

CLUSTER_LOG_PREFIX = "meta/log/"
HEARTBEAT_PREFIX = "meta/heartbeat/"
WAL_PREFIX = "wal/"
WAL_STORE_KEY = "meta/wal-store"
STREAM_ENDS_PREFIX = "meta/stream-ends/"
TOPICS_PREFIX = "topics/"

# Python's \d also matches digits of other scripts, which keys never contain.
_NUMBER = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")
_ROLLUP = re.compile(r"rollup/([0-9]{20})-[0-9a-f]{16}")
_SEGMENT = re.compile(r"segment-([0-9]{20})-([0-9]{20})-([0-9a-f]{16})\.(kfs|index)")
_PARTITION_OF_TOPIC = re.compile(r"topics/([^/]+)\.([0-9a-f]{32})/(manifest/)?([0-9]{10})/")
_STREAM = re.compile(r"wal/([0-9]{20})/")


@dataclass(frozen=True)
class SeriesKeys:
    """The keys of one numbered series: numbers, and checkpoints that fold all numbers below."""

    prefix: str

    def number(self, number: int) -> str:
        return f"{self.prefix}{number:020d}"

    @property
    def checkpoints(self) -> str:
        """The prefix of all checkpoints of the series."""
        return f"{self.prefix}checkpoint/"

    def checkpoint(self, number: int) -> str:
        return f"{self.prefix}checkpoint/{number:020d}"

    def number_of(self, key: str) -> int | None:
        """Return the number in a key of this series; None for any other key."""
        return _number_after(key, self.prefix)

    def checkpoint_of(self, key: str) -> int | None:
        return _number_after(key, self.checkpoints)


def _number_after(key: str, prefix: str) -> int | None:
    rest = key[len(prefix) :]
    return int(rest) if key.startswith(prefix) and _NUMBER.fullmatch(rest) else None


def cluster_log() -> SeriesKeys:
    return SeriesKeys(CLUSTER_LOG_PREFIX)


def heartbeat_key(incarnation: int) -> str:
    """Return the key of a process's heartbeat: the one object that is overwritten."""
    return f"{HEARTBEAT_PREFIX}{incarnation:020d}"


def heartbeat_of(key: str) -> int | None:
    """Return the incarnation in the key of a heartbeat; None for any other key."""
    return _number_after(key, HEARTBEAT_PREFIX)


def stream_ends_key(incarnation: int) -> str:
    """Return the key under which a process notes how far its unreadable stream goes."""
    return f"{STREAM_ENDS_PREFIX}{incarnation:020d}"


def stream_ends_of(key: str) -> int | None:
    """Return the incarnation in the key of such a note; None for any other key."""
    return _number_after(key, STREAM_ENDS_PREFIX)


def wal_stream(incarnation: int) -> SeriesKeys:
    return SeriesKeys(f"{WAL_PREFIX}{incarnation:020d}/")


def manifest(topic: str, topic_id: bytes, partition: int) -> SeriesKeys:
    return SeriesKeys(f"{topic_prefix(topic, topic_id)}manifest/{partition:010d}/")


def topic_prefix(topic: str, topic_id: bytes) -> str:
    """Return the prefix of a topic's keys. A topic that is created again has another id."""
    return f"{TOPICS_PREFIX}{topic[:TOPIC_NAME_SHOWN]}.{topic_id.hex()}/"


def segment_prefix(topic: str, topic_id: bytes, partition: int) -> str:
    return f"{topic_prefix(topic, topic_id)}{partition:010d}/"


def new_segment_key(prefix: str, base_offset: int, incarnation: int, suffix: str) -> str:
    """Return a new, unique key for a `.kfs` or an `.index`."""
    return (
        f"{prefix}segment-{base_offset:020d}-{incarnation:020d}-{runtime.token(8).hex()}.{suffix}"
    )


@dataclass(frozen=True)
class SegmentName:
    """The parts of a segment's or bundle's key."""

    base_offset: int
    incarnation: int
    token: str
    suffix: str


def segment_name(key: str) -> SegmentName | None:
    found = _SEGMENT.fullmatch(key.rpartition("/")[2])
    if found is None:
        return None
    return SegmentName(int(found[1]), int(found[2]), found[3], found[4])


def new_run_key(series: SeriesKeys) -> str:
    """Return a new, unique key for a run of a manifest's segments."""
    return f"{series.prefix}run/{runtime.token(8).hex()}"


def new_rollup_key(stream: SeriesKeys, checkpoint: int) -> str:
    """Return a new, unique key for a roll-up that belongs to one checkpoint of the stream."""
    return f"{stream.prefix}rollup/{checkpoint:020d}-{runtime.token(8).hex()}"


def rollup_checkpoint(stream: SeriesKeys, key: str) -> int | None:
    """Return the checkpoint that a roll-up was made for; None if the key is not of a roll-up."""
    if not key.startswith(stream.prefix):
        return None
    found = _ROLLUP.fullmatch(key, len(stream.prefix))
    return int(found[1]) if found else None


def stream_of(key: str) -> int | None:
    """Return the incarnation in a key of a WAL stream; None for any other key."""
    found = _STREAM.match(key)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class PartitionName:
    """The partition that a key under `topics/` belongs to."""

    topic_shown: str
    topic_id: bytes
    partition: int


def partition_of(key: str) -> PartitionName | None:
    found = _PARTITION_OF_TOPIC.match(key)
    if found is None:
        return None
    return PartitionName(found[1], bytes.fromhex(found[2]), int(found[4]))
