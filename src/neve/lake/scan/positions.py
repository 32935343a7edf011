"""Where a read starts or ends, in the syntax of the options of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from neve.bucket.model import EARLIEST, LATEST, Edge
from neve.errors import InvalidError

EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""What Kafka's protocol and these options use for a partition's first and end offset."""

ByPartition: TypeAlias = Mapping[str, Mapping[int, int]]
"""A number for each partition of each topic."""


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition; -2 is the earliest, -1 the latest."""

    offsets: ByPartition


@dataclass(frozen=True)
class AtTimestamp:
    """The first record of each partition with at least this timestamp, in milliseconds."""

    timestamp: int


@dataclass(frozen=True)
class AtTimestamps:
    """The first record of each partition with at least its timestamp, in milliseconds."""

    timestamps: ByPartition


Position: TypeAlias = Edge | AtOffsets | AtTimestamp | AtTimestamps


def offsets_position(option: str, text: str, *, refused: Edge | None = None) -> Position:
    """Parse `earliest`, `latest` or JSON of offsets by topic and partition.

    Raises InvalidError for `refused`, the edge that leaves nothing to read.
    """
    word = text.strip().lower()
    if word == refused:
        raise InvalidError(f"{option} = {text!r} leaves nothing to read here")
    if word == EARLIEST:
        return EARLIEST
    if word == LATEST:
        return LATEST
    found = numbers_by_partition(option, text, least=EARLIEST_NUMBER)
    refused_number = {EARLIEST: EARLIEST_NUMBER, LATEST: LATEST_NUMBER}.get(refused or "")
    for topic, numbers in found.items():
        for partition, offset in numbers.items():
            if offset == refused_number:
                raise InvalidError(
                    f"{option}: {offset} ({refused}) for partition {partition} of {topic!r} "
                    "leaves nothing to read here"
                )
    return AtOffsets(found)


def timestamp_position(option: str, text: str) -> AtTimestamp:
    """Parse milliseconds since 1970, for all partitions."""
    try:
        moment = int(text)
    except ValueError:
        moment = -1
    if moment < 0:
        raise InvalidError(f"{option} = {text!r}: give milliseconds since 1970")
    return AtTimestamp(moment)


def timestamps_position(option: str, text: str) -> AtTimestamps:
    """Parse JSON of milliseconds by topic and partition."""
    return AtTimestamps(numbers_by_partition(option, text, least=0))


def numbers_by_partition(option: str, text: str, *, least: int) -> ByPartition:
    """Parse JSON such as `{"orders": {"0": 23, "1": 42}}`."""
    found: dict[str, dict[int, int]] = {}
    for topic, numbers in _object(option, text).items():
        if not isinstance(numbers, dict):
            raise InvalidError(f"{option}: {topic!r} must have an object of partitions")
        found[topic] = {}
        for partition, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise InvalidError(
                    f"{option}: {number!r} of partition {partition} of {topic!r} must be an "
                    f"integer >= {least}"
                )
            found[topic][_partition(option, partition)] = number
    return found


def partitions_by_topic(option: str, text: str) -> Mapping[str, tuple[int, ...]]:
    """Parse JSON such as `{"orders": [0, 1]}`."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, list) or not partitions:
            raise InvalidError(f"{option}: {topic!r} must have a list of partitions")
        found[topic] = tuple(sorted({_partition(option, each) for each in partitions}))
    return found


def _object(option: str, text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidError(f"{option} = {text!r} is not JSON: {error}") from error
    if not isinstance(given, dict) or not given:
        raise InvalidError(f"{option} = {text!r} must be a JSON object of topics")
    return given


def _partition(option: str, given: object) -> int:
    try:
        number = int(given) if isinstance(given, int | str) else -1
    except ValueError:
        number = -1
    if number < 0 or isinstance(given, bool):
        raise InvalidError(f"{option}: {given!r} is not a partition")
    return number
