"""Consumer groups: their states, members, committed offsets and lag, under kafka_exporter's names.

As there, a topic is shown for a group that committed any of its offsets, with all its partitions:
-1 where nothing was committed, so that a partition nobody reads can be alerted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from neve.serving.text import header, quoted, several

PIECE = 500
NONE = -1


class GroupRow(NamedTuple):
    """One group, and the offsets it committed: by topic, then by partition."""

    group_id: str
    state: str
    members: int
    offsets: Mapping[str, Mapping[int, int]]


Ends = Callable[[str], Sequence[int | None]]
"""The committed ends of a topic's partitions, by number; None for those led elsewhere."""


class _Lines:
    """The samples of one family, in pieces."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pieces: list[list[str]] = [[]]

    def add(self, labels: str, value: int) -> None:
        self._pieces[-1].append(f"{self._name}{{{labels}}} {value}\n")
        if len(self._pieces[-1]) >= PIECE:
            self._pieces.append([])

    def text(self) -> Iterator[str]:
        yield header(self._name)
        for piece in self._pieces:
            yield "".join(piece)


def group_view(groups: Iterable[GroupRow], states: Iterable[str], ends: Ends) -> Iterator[str]:
    """`states` are all that there are: one without a group is shown with 0."""
    by_state = dict.fromkeys(states, 0)
    members = _Lines("kafka_consumergroup_members")
    offsets, lags = _Lines("kafka_consumergroup_current_offset"), _Lines("kafka_consumergroup_lag")
    offset_sums = _Lines("kafka_consumergroup_current_offset_sum")
    lag_sums = _Lines("kafka_consumergroup_lag_sum")
    for group in groups:
        by_state[group.state] = by_state.get(group.state, 0) + 1
        named = f"consumergroup={quoted(group.group_id)}"
        members.add(named, group.members)
        for topic, committed in group.offsets.items():
            in_topic = f"topic={quoted(topic)}"
            offset_sum = lag_sum = 0
            known = ends(topic)
            if not known:
                continue  # deleted: its offsets are about to be
            for number, end in enumerate(known):
                labels = f'{named},partition="{number}",{in_topic}'
                offset = committed.get(number, NONE)
                offsets.add(labels, offset)
                if offset != NONE:
                    offset_sum += offset
                if end is not None:
                    lag = NONE if offset == NONE else max(0, end - offset)
                    lags.add(labels, lag)
                    lag_sum += max(0, lag)
            offset_sums.add(f"{named},{in_topic}", offset_sum)
            lag_sums.add(f"{named},{in_topic}", lag_sum)
            yield ""
    yield several("neve_groups", [((state,), count) for state, count in by_state.items()])
    for lines in (members, offsets, lags, offset_sums, lag_sums):
        yield from lines.text()
