"""Bounds on the rows of a read: topics, partitions, offsets and timestamps.

A plan leaves out offsets that cannot contain such rows. Bounds come from options of the read and,
with `pushFilters`, from filters of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.bucket.model import OFFSET_MAX


@dataclass(frozen=True)
class RowBounds:
    """Tests of topics and partitions, and half-open ranges of offsets and of milliseconds."""

    topic_tests: tuple[tuple[str, Any], ...] = ()
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    to_offset: int = OFFSET_MAX
    from_timestamp: int | None = None
    to_timestamp: int | None = None

    def wants_topic(self, topic: str) -> bool:
        return all(_TOPIC_TESTS[kind](topic, value) for kind, value in self.topic_tests)

    def wants_partition(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions


_TOPIC_TESTS: dict[str, Callable[[str, Any], bool]] = {
    "in": lambda topic, values: topic in values,
    "starts": lambda topic, text: topic.startswith(text),
    "ends": lambda topic, text: topic.endswith(text),
    "contains": lambda topic, text: text in topic,
}
