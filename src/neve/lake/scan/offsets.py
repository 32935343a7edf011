"""How far a stream has read: for each topic its id and the next offset of each partition.

Spark keeps these as JSON in its checkpoint and compares them as text, so what is equal is written
alike: topics and partitions in order. The id tells a topic from another one that was made under the
same name later.
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
        """As Spark keeps it."""
        return {
            name: {
                "id": topic.id,
                "offsets": {str(number): topic.offsets[number] for number in sorted(topic.offsets)},
            }
            for name, topic in sorted(self.topics.items())
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamOffsets:
        """What `to_json` made; anything else is refused."""
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
                f"{given!r} are no offsets of this source: does the checkpoint belong to another "
                "query?"
            ) from error


Lags = Mapping[tuple[str, int], int]
"""Records not yet read, by topic and partition."""


def shares(lags: Lags, records_max: int) -> dict[tuple[str, int], int]:
    """How many records of each partition make up a batch of at most so many.

    One of each that has any, so that none waits behind a partition that always has more: as with
    Spark's Kafka source, that alone may be more than the most. The others in proportion to what
    each has; the remainders go to those that were cut most, so that a batch is full.
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
    """`end`, or less: at most so many records behind `start`.

    `begins` has the first offset that each partition has.
    """
    firsts: dict[tuple[str, int], int] = {}
    lags: dict[tuple[str, int], int] = {}
    for name, topic in end.topics.items():
        known = known_offsets(start, name, topic.id)
        for number, offset in topic.offsets.items():
            # What was removed below a partition's beginning is no record of any batch.
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
    """Where a topic was read up to; nothing for one that is new, or new under an old name."""
    found = start.topics.get(topic)
    return found.offsets if found is not None and found.id == topic_id else {}
