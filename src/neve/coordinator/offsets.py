"""The committed offsets of one group: pure, like the group itself.

A change begins when its records are appended to the log, and becomes visible only when they are
committed. Many changes may be in flight at once, and their outcomes may arrive in any order. Of two
changes to one partition, the one that began later wins, as it does in the log.

An offset belongs to a topic id: an offset that was committed for a deleted topic does not apply to
another topic of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from neve import runtime
from neve.coordinator.group_messages import GroupState

OFFSET_BYTES = 512
"""Memory of an offset without its strings: here, and as a record in its partition's table."""
NO_OFFSET = -1
NO_EPOCH = -1
NO_TOPIC_ID = bytes(16)
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read. `topic_id` is NO_TOPIC_ID if the offset's record had none."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID

    def is_of(self, topic_id: bytes | None) -> bool:
        return topic_id is not None and self.topic_id in (topic_id, NO_TOPIC_ID)


def size_of(key: TopicPartition, value: CommittedOffset | None) -> int:
    """Return the bytes that an offset takes up; 0 for None."""
    if value is None:
        return 0
    return OFFSET_BYTES + 2 * len(key[0]) + 2 * sys.getsizeof(value.metadata)


UNCOMMITTED = CommittedOffset(NO_OFFSET)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change in flight. None removes an offset."""

    sequence: int
    offsets: Mapping[TopicPartition, CommittedOffset | None]


class Offsets:
    """All offsets of one group. Their bytes count in a memory share once `count_in` sets one."""

    def __init__(self) -> None:
        self._share: runtime.MemoryShare | None = None
        self._bytes = 0  # of committed offsets and of changes in flight
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._in_flight: dict[TopicPartition, int] = {}
        # The newest visible change of each partition that has changes in flight.
        self._shown: dict[TopicPartition, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def is_settled(self) -> bool:
        """Whether no change is in flight."""
        return not self._in_flight

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a committed offset nor a change in flight."""
        return not self._committed and not self._in_flight

    def get(self, key: TopicPartition) -> CommittedOffset | None:
        return self._committed.get(key)

    def items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        return iter(list(self._committed.items()))

    def count_in(self, share: runtime.MemoryShare | None) -> None:
        """Count the bytes in this share from now on, or in none."""
        if self._share is not None:
            self._share.give_back(self._bytes)
        if share is not None:
            share.count(self._bytes)
        self._share = share

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._share is not None:
            self._share.count(size)

    def fits(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Whether there is room for these offsets in place of the committed ones."""
        if self._share is None:
            return True
        growth = sum(
            size_of(key, value) - size_of(key, self._committed.get(key))
            for key, value in offsets.items()
        )
        return growth <= 0 or growth <= self._share.room_bytes

    def restore(self, key: TopicPartition, value: CommittedOffset) -> None:
        self._count(size_of(key, value) - size_of(key, self._committed.get(key)))
        self._committed[key] = value

    def everything(self) -> list[TopicPartition]:
        """Return all partitions with an offset or a change in flight, for a complete removal."""
        return list(dict.fromkeys([*self._committed, *self._in_flight]))

    # -- changes

    def begin(self, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> Change:
        self._sequence += 1
        for key, value in offsets.items():
            self._in_flight[key] = self._in_flight.get(key, 0) + 1
            self._count(size_of(key, value))
        return Change(self._sequence, offsets)

    def committed(self, change: Change) -> None:
        for key, value in change.offsets.items():
            if change.sequence > self._shown.get(key, 0):
                self._shown[key] = change.sequence
                self._count(-size_of(key, self._committed.pop(key, None)))
                if value is not None:
                    self._committed[key] = value
            else:
                self._count(-size_of(key, value))
            self._landed(key)

    def failed(self, change: Change) -> None:
        for key, value in change.offsets.items():
            self._count(-size_of(key, value))
            self._landed(key)

    def _landed(self, key: TopicPartition) -> None:
        left = self._in_flight[key] - 1
        if left:
            self._in_flight[key] = left
        else:
            del self._in_flight[key]
            self._shown.pop(key, None)

    # -- finding offsets to remove

    def settled(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of these partitions that have no change in flight.

        A removal would come after the changes in flight in the log, and would undo them too.
        """
        return [key for key in keys if key not in self._in_flight]

    def orphans(
        self,
        id_of: Callable[[str], bytes | None],
        among: Iterable[TopicPartition] | None = None,
    ) -> list[TopicPartition]:
        """Return partitions, of these or of all, whose offset belongs to no existing topic."""
        keys = self._committed if among is None else among
        return [
            key
            for key in keys
            if (value := self._committed.get(key)) is not None and not value.is_of(id_of(key[0]))
        ]

    def expired(self, now_ms: int, retention_ms: int, idle: Idleness) -> list[TopicPartition]:
        return [
            key
            for key, value in self._committed.items()
            if (since_ms := idle.since_ms(key[0], value)) is not None
            and now_ms - since_ms >= retention_ms
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """Determines since when an offset has been unused, from the state of its group."""

    state: GroupState
    state_since_ms: int
    is_simple: bool
    """Whether no member ever joined: its clients only commit offsets."""
    subscribed: frozenset[str] | None

    def since_ms(self, topic: str, value: CommittedOffset) -> int | None:
        """Return since when the offset has been unused (wall clock); None if it is in use."""
        if self.is_simple:
            return value.commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            # A commit to an empty group, for example by a tool, counts as a use too.
            return max(self.state_since_ms, value.commit_timestamp_ms)
        is_known = self.state is GroupState.STABLE and self.subscribed is not None
        if is_known and self.subscribed is not None and topic not in self.subscribed:
            return value.commit_timestamp_ms
        return None
