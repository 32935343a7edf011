"""Consumer groups: their states, members, committed offsets and lag, under kafka_exporter's names.

As in kafka_exporter, a group has samples for all partitions of each topic for which it committed
any offset. The value is -1 for a partition without a committed offset, so that an alert can find
partitions that no consumer reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from neve.coordinator.group_messages import GroupState
from neve.coordinator.groups import GroupSummary
from neve.serving.text import header, quoted, several

SLICE_LINES = 500
NONE = -1


Ends = Callable[[str], Sequence[int | None]]
"""The high watermarks of a topic's partitions; None for those that another broker leads."""


class _Lines:
    """The samples of one metric family, in slices of `SLICE_LINES`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._slices: list[list[str]] = [[]]

    def add(self, labels: str, value: int) -> None:
        self._slices[-1].append(f"{self._name}{{{labels}}} {value}\n")
        if len(self._slices[-1]) >= SLICE_LINES:
            self._slices.append([])

    def text(self) -> Iterator[str]:
        yield header(self._name)
        for lines in self._slices:
            yield "".join(lines)


def group_view(groups: Iterable[GroupSummary], ends: Ends) -> Iterator[str]:
    """Yield the samples of all groups, and the number of groups in each state."""
    by_state = dict.fromkeys(GroupState, 0)
    members = _Lines("kafka_consumergroup_members")
    offsets, lags = _Lines("kafka_consumergroup_current_offset"), _Lines("kafka_consumergroup_lag")
    offset_sums = _Lines("kafka_consumergroup_current_offset_sum")
    lag_sums = _Lines("kafka_consumergroup_lag_sum")
    for group in groups:
        by_state[group.state] += 1
        named = f"consumergroup={quoted(group.group_id)}"
        members.add(named, group.members)
        for topic, committed in group.offsets.items():
            in_topic = f"topic={quoted(topic)}"
            offset_sum = lag_sum = 0
            known = ends(topic)
            if not known:
                continue  # the topic is deleted, and its offsets soon will be
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
    yield several("neve_groups", [((state.value,), count) for state, count in by_state.items()])
    for lines in (members, offsets, lags, offset_sums, lag_sums):
        yield from lines.text()
