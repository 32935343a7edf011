"""The offsets of a stream: for each topic its id and the next offset of each partition.

Spark stores them as JSON in its checkpoint and compares them as text, so equal offsets must give
equal text: topics and partitions are sorted. The id distinguishes a topic from a later one with the
same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neve.errors import InvalidError


@dataclass(frozen=True)
class TopicOffsets:
    """The next offset of each partition of one topic."""

    id: str
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamOffsets:
    """All topics of a stream, by name."""

    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores."""
        return {
            name: {
                "id": topic.id,
                "offsets": {str(number): topic.offsets[number] for number in sorted(topic.offsets)},
            }
            for name, topic in sorted(self.topics.items())
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamOffsets:
        """Parse what `to_json` returned. Raises InvalidError for anything else."""
        try:
            return cls(
                {
                    name: TopicOffsets(
                        str(topic["id"]),
                        {int(number): int(offset) for number, offset in topic["offsets"].items()},
                    )
                    for name, topic in given.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidError(
                f"{given!r} are not offsets of this source: does the checkpoint belong to another "
                "query?"
            ) from error


Lags = Mapping[tuple[str, int], int]
"""Records not yet read, by topic and partition."""


def shares(lags: Lags, records_max: int) -> dict[tuple[str, int], int]:
    """Return the number of records that each partition adds to a batch of `records_max`.

    Each partition with a lag gets at least one, so that none starves: as with Spark's Kafka source,
    these alone can exceed `records_max`. The rest is shared in proportion to the lags. Remainders
    go to the partitions that rounding cut most, so that the batch is full.
    """
    if sum(lags.values()) <= records_max:
        return dict(lags)
    found = {name: min(1, lag) for name, lag in lags.items()}
    most = records_max - sum(found.values())
    if most <= 0:
        return found
    rest = {name: lag - found[name] for name, lag in lags.items()}
    total = sum(rest.values())
    for name, lag in rest.items():
        found[name] += lag * most // total
    left = records_max - sum(found.values())
    for name in sorted(rest, key=lambda name: (-(rest[name] * most % total), name))[:left]:
        found[name] += 1
    return found


def limited(
    start: StreamOffsets, end: StreamOffsets, begins: Lags, records_max: int
) -> StreamOffsets:
    """Return `end`, reduced to at most `records_max` records after `start`.

    `begins` has the log start offset of each partition.
    """
    firsts: dict[tuple[str, int], int] = {}
    lags: dict[tuple[str, int], int] = {}
    for name, topic in end.topics.items():
        known = known_offsets(start, name, topic.id)
        for number, offset in topic.offsets.items():
            # Records below the log start were removed and do not count.
            first = max(known.get(number, 0), begins.get((name, number), 0))
            firsts[name, number] = min(first, offset)
            lags[name, number] = offset - firsts[name, number]
    wanted = shares(lags, records_max)
    return StreamOffsets(
        {
            name: TopicOffsets(
                topic.id,
                {number: firsts[name, number] + wanted[name, number] for number in topic.offsets},
            )
            for name, topic in end.topics.items()
        }
    )


def known_offsets(start: StreamOffsets, topic: str, topic_id: str) -> Mapping[int, int]:
    """Return a topic's next offset by partition; empty if `start` lacks this name and id."""
    found = start.topics.get(topic)
    return found.offsets if found is not None and found.id == topic_id else {}
