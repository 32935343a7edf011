"""How far a table has come: for each topic id, the next offset of each partition.

Pure. A partition that is not named has not been started, which is not the same as offset 0: where
it starts is the planner's to say. A topic that was deleted and created again has another id and so
stands beside its predecessor.
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
    """One topic's: its name, and the next offset to be read of each partition."""

    topic: str
    offsets: Mapping[int, int] = field(default_factory=dict)


Progress: TypeAlias = Mapping[str, TopicProgress]
"""By topic id, as its hexadecimal text."""


class RangeState(Enum):
    """What a table's progress says about a range that somebody wants to commit."""

    OPEN = auto()
    """Exactly what the range was planned from: it may be committed."""
    DONE = auto()
    """Every partition of the range has got at least to its end."""
    DIVERGED = auto()
    """Neither: part of it is there, or less than it builds on. It must be planned anew."""


def range_state(current: Progress, expected: Progress, new: Progress) -> RangeState:
    """Where the table stands, looking only at the partitions that the range moves."""
    moved = list(_moved(expected, new))
    if all(offset_of(current, *where) == offset_of(expected, *where) for where, _ in moved):
        return RangeState.OPEN
    if all((offset_of(current, *where) or 0) >= end for where, end in moved):
        return RangeState.DONE
    return RangeState.DIVERGED


def offset_of(progress: Progress, topic_id: str, partition: int) -> int | None:
    """The next offset, or None where the partition has not been started."""
    topic = progress.get(topic_id)
    return None if topic is None else topic.offsets.get(partition)


def merged(current: Progress, new: Progress) -> Progress:
    """The current progress with the new one's partitions in place of its own."""
    result = dict(current)
    for topic_id, topic in new.items():
        before = current[topic_id].offsets if topic_id in current else {}
        result[topic_id] = TopicProgress(topic.topic, {**before, **topic.offsets})
    return result


def check_forward(expected: Progress, new: Progress) -> None:
    """Refuse a range that would go back."""
    for (topic_id, partition), end in _moved(expected, new):
        first = offset_of(expected, topic_id, partition)
        if end < 0 or (first is not None and end < first):
            raise InvalidError(
                f"topic {new[topic_id].topic}, partition {partition}: a commit cannot go back from "
                f"offset {first} to {end}; plan it from the table's own progress"
            )


def _moved(expected: Progress, new: Progress) -> Iterator[tuple[tuple[str, int], int]]:
    for topic_id, topic in sorted(new.items()):
        for partition, end in sorted(topic.offsets.items()):
            if offset_of(expected, topic_id, partition) != end:
                yield (topic_id, partition), end


# --- as text


def plain_of(progress: Progress) -> dict[str, Any]:
    """As JSON can hold it: offsets in the order of partitions, null for one not started."""
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
    """The reverse of `plain_of`. `where` names what held it, for the error."""
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
    """One line of JSON, for a snapshot's or a table's property."""
    content = {"version": VERSION, **more, "topics": plain_of(progress)}
    return json.dumps(content, separators=(",", ":"))


def from_text(text: str, where: str) -> tuple[Progress, dict[str, Any]]:
    """The progress and whatever else the property holds."""
    try:
        content = json.loads(text)
        version = content.pop("version")
        topics = content.pop("topics")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(where, f"its offsets cannot be read ({error!r})") from error
    if version != VERSION:
        raise UnsupportedError(
            f"{where}: its offsets are of version {version}, and this Neve knows {VERSION}; "
            "use the Neve that wrote them, or a newer one"
        )
    return progress_of(topics, where), content
