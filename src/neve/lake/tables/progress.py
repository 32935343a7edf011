"""The progress of a table: for each topic id, the next offset of each partition. Pure.

A missing partition has not been started, which differs from offset 0: the planner decides where it
starts. A topic that was deleted and recreated has another id, and an entry beside the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias

from neve.errors import DamagedError, InvalidError, UnsupportedError

VERSION = 1


@dataclass(frozen=True)
class TopicProgress:
    """The name of one topic, and the next offset to be read of each partition."""

    topic: str
    offsets: Mapping[int, int] = field(default_factory=dict)


Progress: TypeAlias = Mapping[str, TopicProgress]
"""By topic id, as hexadecimal text."""


class RangeState(Enum):
    """The state of a range to be committed, compared with the table's progress."""

    OPEN = auto()
    """The table's offsets are those that the range was planned from: it may be committed."""
    DONE = auto()
    """The table has every partition of the range at least up to its end."""
    DIVERGED = auto()
    """Neither: the table has a part of it, or less than its start. It must be planned again."""


def range_state(current: Progress, expected: Progress, new: Progress) -> RangeState:
    """Return the state of a range, looking only at the partitions that it moves."""
    moved = list(_moved(expected, new))
    if all(offset_of(current, *where) == offset_of(expected, *where) for where, _ in moved):
        return RangeState.OPEN
    if all((offset_of(current, *where) or 0) >= end for where, end in moved):
        return RangeState.DONE
    return RangeState.DIVERGED


def offset_of(progress: Progress, topic_id: str, partition: int) -> int | None:
    """Return the next offset; None if the partition has not been started."""
    topic = progress.get(topic_id)
    return None if topic is None else topic.offsets.get(partition)


def merged(current: Progress, new: Progress) -> Progress:
    """Return the current progress, updated by the partitions of the new one."""
    result = dict(current)
    for topic_id, topic in new.items():
        before = current[topic_id].offsets if topic_id in current else {}
        result[topic_id] = TopicProgress(topic.topic, {**before, **topic.offsets})
    return result


def check_forward(expected: Progress, new: Progress) -> None:
    """Raise InvalidError for a range that would move an offset back."""
    for (topic_id, partition), end in _moved(expected, new):
        first = offset_of(expected, topic_id, partition)
        if end < 0 or (first is not None and end < first):
            raise InvalidError(
                f"topic {new[topic_id].topic}, partition {partition}: a commit cannot go back from "
                f"offset {first} to {end}; plan it from the table's progress"
            )


def _moved(expected: Progress, new: Progress) -> Iterator[tuple[tuple[str, int], int]]:
    for topic_id, topic in sorted(new.items()):
        for partition, end in sorted(topic.offsets.items()):
            if offset_of(expected, topic_id, partition) != end:
                yield (topic_id, partition), end


# --- as text


def plain_of(progress: Progress) -> dict[str, Any]:
    """Return a form for JSON: offsets in the order of partitions, null for one not started."""
    return {
        topic_id: {
            "name": topic.topic,
            "offsets": [
                topic.offsets.get(partition)
                for partition in range(max(topic.offsets, default=-1) + 1)
            ],
        }
        for topic_id, topic in sorted(progress.items())
    }


def progress_of(plain: Any, where: str) -> Progress:
    """Parse the result of `plain_of`. Raises DamagedError, with `where` as its place."""
    try:
        return {
            str(topic_id): TopicProgress(
                str(topic["name"]),
                {
                    partition: int(offset)
                    for partition, offset in enumerate(topic["offsets"])
                    if offset is not None
                },
            )
            for topic_id, topic in plain.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(where, f"its offsets cannot be read ({error!r})") from error


def to_text(progress: Progress, **more: Any) -> str:
    """Return one line of JSON, for a property of a snapshot or a table."""
    content = {"version": VERSION, **more, "topics": plain_of(progress)}
    return json.dumps(content, separators=(",", ":"))


def from_text(text: str, where: str) -> tuple[Progress, dict[str, Any]]:
    """Return the progress and the other content of the property.

    Raises DamagedError, or UnsupportedError for another version.
    """
    try:
        content = json.loads(text)
        version = content.pop("version")
        topics = content.pop("topics")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(where, f"its offsets cannot be read ({error!r})") from error
    if version != VERSION:
        raise UnsupportedError(
            f"{where}: its offsets have version {version}, and this Neve supports {VERSION}; "
            "use the Neve that wrote them, or a newer one"
        )
    return progress_of(topics, where), content
