"""Every key of the bucket: one format and one parse each.

Keys are flat and their numbers have a fixed width, so that sorting keys sorts numbers and no key is
the folder of another. Nothing else in Neve builds or takes apart a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from neve import runtime

NUMBER_DIGITS = 20
# A folder store cannot have a path component above 255 bytes, and a topic's name may have 249:
# keys carry its beginning for people to read, and the id distinguishes topics.
TOPIC_NAME_SHOWN = 200

CLUSTER_LOG_PREFIX = "meta/log/"
WAL_PREFIX = "wal/"
TOPICS_PREFIX = "topics/"

# Python's \d also takes other scripts' digits, which no key of ours has.
_NUMBER = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")
_ROLLUP = re.compile(r"rollup/([0-9]{20})-[0-9a-f]{16}")
_SEGMENT = re.compile(r"segment-([0-9]{20})-([0-9]{20})-([0-9a-f]{16})\.(kfs|index)")
_PARTITION_OF_TOPIC = re.compile(r"topics/([^/]+)\.([0-9a-f]{32})/(manifest/)?([0-9]{10})/")
_STREAM = re.compile(r"wal/([0-9]{20})/")


@dataclass(frozen=True)
class SeriesKeys:
    """The keys of one numbered series: numbers, and checkpoints that sum up what is below them."""

    prefix: str

    def number(self, number: int) -> str:
        return f"{self.prefix}{number:020d}"

    @property
    def checkpoints(self) -> str:
        """The prefix under which all checkpoints of the series lie."""
        return f"{self.prefix}checkpoint/"

    def checkpoint(self, number: int) -> str:
        return f"{self.prefix}checkpoint/{number:020d}"

    def number_of(self, key: str) -> int | None:
        """The number that a key of this series stands for; None for any other key."""
        return _number_after(key, self.prefix)

    def checkpoint_of(self, key: str) -> int | None:
        return _number_after(key, self.checkpoints)


def _number_after(key: str, prefix: str) -> int | None:
    rest = key[len(prefix) :]
    return int(rest) if key.startswith(prefix) and _NUMBER.fullmatch(rest) else None


def cluster_log() -> SeriesKeys:
    return SeriesKeys(CLUSTER_LOG_PREFIX)


def wal_stream(incarnation: int) -> SeriesKeys:
    return SeriesKeys(f"{WAL_PREFIX}{incarnation:020d}/")


def manifest(topic: str, topic_id: bytes, partition: int) -> SeriesKeys:
    return SeriesKeys(f"{topic_prefix(topic, topic_id)}manifest/{partition:010d}/")


def topic_prefix(topic: str, topic_id: bytes) -> str:
    """The keys of a topic. A topic created again has another id, so other keys."""
    return f"{TOPICS_PREFIX}{topic[:TOPIC_NAME_SHOWN]}.{topic_id.hex()}/"


def segment_prefix(topic: str, topic_id: bytes, partition: int) -> str:
    return f"{topic_prefix(topic, topic_id)}{partition:010d}/"


def new_segment_key(prefix: str, base_offset: int, incarnation: int, suffix: str) -> str:
    """A key that was never used before, for a `.kfs` or an `.index`."""
    return (
        f"{prefix}segment-{base_offset:020d}-{incarnation:020d}-{runtime.token(8).hex()}.{suffix}"
    )


@dataclass(frozen=True)
class SegmentName:
    """What a segment's or bundle's key says by itself."""

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
    """A key for an immutable run of a manifest's segments."""
    return f"{series.prefix}run/{runtime.token(8).hex()}"


def new_rollup_key(stream: SeriesKeys, checkpoint: int) -> str:
    """A key for a roll-up made for one checkpoint of the stream, and for no other."""
    return f"{stream.prefix}rollup/{checkpoint:020d}-{runtime.token(8).hex()}"


def rollup_checkpoint(stream: SeriesKeys, key: str) -> int | None:
    """Return the checkpoint that a roll-up was made for; None if the key is not of a roll-up."""
    if not key.startswith(stream.prefix):
        return None
    found = _ROLLUP.fullmatch(key, len(stream.prefix))
    return int(found[1]) if found else None


def stream_of(key: str) -> int | None:
    """The incarnation whose stream a key belongs to."""
    found = _STREAM.match(key)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class PartitionName:
    """Which partition a key under topics/ belongs to."""

    topic_shown: str
    topic_id: bytes
    partition: int


def partition_of(key: str) -> PartitionName | None:
    found = _PARTITION_OF_TOPIC.match(key)
    if found is None:
        return None
    return PartitionName(found[1], bytes.fromhex(found[2]), int(found[4]))
