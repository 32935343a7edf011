"""All groups of one process: which partitions are loaded, and how effects are carried out.

Groups are pure; the table drives them: it sends responses, appends records and runs timers. A
partition of the internal topic is absent (another process coordinates its groups), loading, or
loaded with the log that its records are appended to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from neve import runtime
from neve.coordinator.group import Group
from neve.coordinator.group_errors import GroupError, group_error_for
from neve.coordinator.group_messages import Effects, GroupState, Save
from neve.coordinator.group_partition import partition_of
from neve.coordinator.group_timers import GroupTimers, monotonic_ms
from neve.coordinator.offsets import Change, CommittedOffset, Offsets, TopicPartition
from neve.coordinator.state_records import (
    GroupKey,
    GroupRecord,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from neve.errors import FencedError, FullError, NeveError
from neve.serving.logs import event
from neve.settings import GroupSettings
from neve.settings.declare import MIB

_log = logging.getLogger(__name__)

GROUP_ID_BYTES_MAX = 2**15 - 1
"""The longest group id that fits into the key of a record."""
UNDECIDED_BYTES_MAX = 16 * MIB
"""Bytes of records of all groups that are not committed yet. The log accepts them even if producers
have filled its buffer, and while a store hangs, clients repeat their requests. So records beyond
this bound are refused at once, with an error that clients retry. A change is always accepted if no
other one waits."""
TENTATIVE_MAX = 10_000
"""Groups without a record. Each costs its client one request, and the broker some KiB."""
_MEMBER_BYTES = 1024
"""Memory of a member without its metadata and assignment."""
_GROUP_BYTES = 1536
"""Memory of a group without its members and offsets."""
_ROW_BYTES = 256
"""Memory of a record in flight, without its key and value."""
_LOAD_ROWS = 500
"""Rows of a state table that are loaded before other tasks may run."""

Record = tuple[bytes, bytes | None]


class StateLog(Protocol):
    """One partition of the internal topic. Records land in the order of the calls."""

    def append(self, records: Sequence[Record]) -> Awaitable[None]:
        """Append records and wait for their commit. Raises NeveError if they are not committed."""
        ...


@dataclass(eq=False, slots=True)
class Slot:
    """A group, its offsets, and since when it has been in its state (wall clock)."""

    group: Group
    partition: int
    state_since_ms: int
    offsets: Offsets = field(default_factory=Offsets)
    state: GroupState = GroupState.EMPTY
    taken_bytes: int = 0
    """The group's bytes as last counted in the memory of all groups."""
    is_known: bool = False
    """Whether a record of it was committed: it stays until it expires or is deleted."""


@dataclass(eq=False, slots=True)
class _Partition:
    log: StateLog | None = None  # None: loading


class GroupTable:
    """The groups by name."""

    def __init__(
        self,
        settings: GroupSettings,
        on_failure: Callable[[BaseException], None] | None = None,
        memory: runtime.MemoryBudget | None = None,
    ) -> None:
        memory = memory or runtime.MemoryBudget()
        self.settings = settings
        self.memory = memory.state("groups", settings.all_metadata_bytes_max)
        self.offsets_memory = memory.state("committed-offsets", settings.offsets_memory_bytes)
        self.partitions = settings.partitions
        self._slots: dict[str, Slot] = {}
        self._tentative: dict[str, None] = {}  # groups without a record, oldest first
        self._partitions: dict[int, _Partition] = {}
        self._timers = GroupTimers(self._on_timer)
        self._tasks = runtime.Tasks(on_failure)
        self._undecided_bytes = 0

    def configure(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.memory.bytes_max = settings.all_metadata_bytes_max
        self.offsets_memory.bytes_max = settings.offsets_memory_bytes
        for slot in self._slots.values():
            slot.group.settings = settings

    def start(self) -> None:
        self._tasks.start(self._timers.run(), name="group timers")

    async def close(self) -> None:
        for partition in list(self._partitions):
            self.unload(partition)
        await self._tasks.close()

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def get(self, group_id: str) -> Slot | None:
        return self._slots.get(group_id)

    @property
    def is_loading(self) -> bool:
        return any(each.log is None for each in self._partitions.values())

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self.partitions)

    def serving_error(self, group_id: str, *, may_be_nameless: bool = False) -> GroupError | None:
        """Return why this process cannot serve a group; None if it can."""
        if not group_id and not may_be_nameless:
            return GroupError.INVALID_GROUP_ID
        if len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            return GroupError.INVALID_GROUP_ID
        partition = self._partitions.get(self.partition_of(group_id))
        if partition is None:
            return GroupError.NOT_COORDINATOR
        return GroupError.LOADING if partition.log is None else None

    def create(self, group_id: str) -> Slot | None:
        """Create an empty group. Returns None if there are too many groups.

        The oldest group without a record is dropped if room is needed; its members start again.
        """
        is_full = len(self._slots) >= self.settings.groups_max
        is_full |= self.memory.room_bytes < _GROUP_BYTES
        if is_full or len(self._tentative) >= TENTATIVE_MAX:
            oldest = next(iter(self._tentative), None)
            if oldest is None:
                return None
            self._deliver(self._slots[oldest].group.die(GroupError.UNAVAILABLE))
            self._drop(oldest)
        group = Group(group_id, self.settings)
        slot = Slot(group, self.partition_of(group_id), runtime.now_ms())
        self._slots[group_id] = slot
        slot.offsets.count_in(self.offsets_memory)
        return slot

    # -- loading

    def begin_load(self, partition: int) -> None:
        """Refuse a partition's groups with LOADING until `load` or `unload`."""
        self.unload(partition)
        self._partitions[partition] = _Partition()

    async def load(self, partition: int, rows: Mapping[bytes, bytes], log: StateLog) -> None:
        """Load a partition's groups and offsets from its state table, and begin to serve them.

        Raises DamagedError for a damaged record. The partition is absent again after an error: no
        response is better than a wrong offset.
        """
        self.unload(partition)
        mark = self._partitions[partition] = _Partition()
        try:
            slots = await self._decoded(partition, rows)
        except BaseException:
            if self._partitions.get(partition) is mark:
                del self._partitions[partition]
            raise
        if self._partitions.get(partition) is not mark:
            return  # unloaded, or loaded again, meanwhile
        mark.log = log
        self._slots.update(slots)
        for slot in slots.values():
            slot.offsets.count_in(self.offsets_memory)
            self.update(slot)

    async def _decoded(self, partition: int, rows: Mapping[bytes, bytes]) -> dict[str, Slot]:
        slots: dict[str, Slot] = {}
        offsets: dict[str, Offsets] = {}
        for count, (raw_key, value) in enumerate(rows.items(), 1):
            key = decode_key(raw_key)
            if isinstance(key, GroupKey):
                slots[key.group_id] = self._restored(partition, decode_group(key.group_id, value))
            elif key is not None:
                kept = offsets.setdefault(key.group_id, Offsets())
                kept.restore((key.topic, key.partition), decode_offset(value))
            if count % _LOAD_ROWS == 0:
                await runtime.sleep(0)
        for group_id, kept in offsets.items():
            if group_id not in slots:
                group = Group(group_id, self.settings)
                slots[group_id] = Slot(group, partition, runtime.now_ms(), is_known=True)
            slots[group_id].offsets = kept
        return slots

    def _restored(self, partition: int, record: GroupRecord) -> Slot:
        # No request waits in a group that was just loaded, so it has no effects to carry out.
        group, _ = Group.restored(record.snapshot, self.settings, monotonic_ms())
        since_ms = record.state_since_ms if record.state_since_ms >= 0 else runtime.now_ms()
        return Slot(group, partition, since_ms, state=group.state, is_known=True)

    def unload(self, partition: int) -> None:
        """Stop serving a partition's groups. Waiting requests get NOT_COORDINATOR."""
        self._partitions.pop(partition, None)
        for group_id, slot in list(self._slots.items()):
            if slot.partition == partition:
                self._deliver(slot.group.die(GroupError.NOT_COORDINATOR))
                self._drop(group_id)

    def _drop(self, group_id: str) -> None:
        slot = self._slots.pop(group_id, None)
        if slot is not None:
            self.memory.give_back(slot.taken_bytes)
            slot.taken_bytes = 0
            slot.offsets.count_in(None)
        self._tentative.pop(group_id, None)
        self._timers.clear(group_id)

    def limit_memory(self, slot: Slot) -> None:
        """Set how much memory a group may take, before a request that may grow it."""
        left = self.memory.bytes_max - (self.memory.used - slot.taken_bytes) - _GROUP_BYTES
        left -= _MEMBER_BYTES * (len(slot.group.members) + 1)
        slot.group.bytes_max = min(self.settings.metadata_bytes_max, left)

    # -- effects

    def carry_out(self, slot: Slot, effects: Effects) -> None:
        self._deliver(effects)
        self.update(slot)
        for save in effects.saves:
            self._save(slot, save)

    def _deliver(self, effects: Effects) -> None:
        for response in effects.responses:
            future: asyncio.Future[object] = response.ticket
            if not future.done():  # the client may have disconnected
                future.set_result(response.result)

    def update(self, slot: Slot) -> None:
        """Count the group's memory, note a change of its state and set its timer.

        To be called after each step. Drops a group that is idle and has no record.
        """
        group = slot.group
        if self._slots.get(group.group_id) is not slot:
            return
        taken_bytes = _GROUP_BYTES + group.taken_bytes + _MEMBER_BYTES * len(group.members)
        self.memory.count(taken_bytes - slot.taken_bytes)
        slot.taken_bytes = taken_bytes
        if group.state is not slot.state:
            slot.state = group.state
            slot.state_since_ms = runtime.now_ms()
            _log_state(group)
        if group.is_forgettable and slot.offsets.is_idle and not slot.is_known:
            self._drop(group.group_id)
            return
        self._timers.set(group.group_id, group.wake_ms)
        if group.has_record or slot.is_known or not slot.offsets.is_idle:
            self._tentative.pop(group.group_id, None)
        else:
            self._tentative.setdefault(group.group_id)

    def _on_timer(self, group_id: str) -> None:
        slot = self._slots.get(group_id)
        if slot is None:
            return
        before = len(slot.group.members)
        self.carry_out(slot, slot.group.tick(monotonic_ms()))
        gone = before - len(slot.group.members)
        if gone > 0:
            event(_log, logging.DEBUG, "members timed out", group=group_id, members=gone)

    # -- records

    def _append(self, slot: Slot, records: Sequence[Record]) -> Awaitable[None]:
        """Append records to the log, in the order of the calls, and wait for their commit.

        The caller must at once start a task that awaits the result: the log may append only then.
        """
        partition = self._partitions.get(slot.partition)
        size = sum(_ROW_BYTES + len(key) + len(value or b"") for key, value in records)
        try:
            if partition is None or partition.log is None:
                raise FencedError(f"group {slot.group.group_id} is coordinated elsewhere now")
            if self._undecided_bytes and self._undecided_bytes + size > UNDECIDED_BYTES_MAX:
                raise FullError(f"{self._undecided_bytes} bytes of groups wait for the store")
            commit = partition.log.append(records)
        except NeveError as error:
            return _refused(error)
        self._undecided_bytes += size
        return self._decided(commit, size)

    async def _decided(self, commit: Awaitable[None], size: int) -> None:
        try:
            await commit
        finally:
            self._undecided_bytes -= size

    def _save(self, slot: Slot, save: Save) -> None:
        record = GroupRecord(save.snapshot, slot.state_since_ms)
        rows = [(encode_group_key(slot.group.group_id), encode_group(record))]
        self._tasks.start(self._saving(slot, save, self._append(slot, rows)))

    async def _saving(self, slot: Slot, save: Save, commit: Awaitable[None]) -> None:
        try:
            await commit
        except NeveError as error:
            effects = slot.group.save_failed(monotonic_ms(), save, group_error_for(error))
        else:
            effects = slot.group.saved(monotonic_ms(), save)
        self.carry_out(slot, effects)

    def write_offsets(
        self, slot: Slot, offsets: Mapping[TopicPartition, CommittedOffset | None]
    ) -> Awaitable[GroupError | None]:
        """Change offsets, and show the change once it is committed.

        Changes are appended in the order of the calls. A separate task appends the records and
        awaits their commit, so cancelling the caller has no effect on them.
        """
        group_id = slot.group.group_id
        rows = [
            (encode_offset_key(group_id, *key), None if value is None else encode_offset(value))
            for key, value in offsets.items()
        ]
        change = slot.offsets.begin(offsets)
        commit = self._append(slot, rows)
        return asyncio.shield(self._tasks.start(self._writing(slot, change, commit)))

    async def _writing(
        self, slot: Slot, change: Change, commit: Awaitable[None]
    ) -> GroupError | None:
        try:
            await commit
        except NeveError as error:
            slot.offsets.failed(change)
            return group_error_for(error)
        else:
            slot.offsets.committed(change)
            slot.is_known = True
            return None
        finally:
            self.update(slot)

    def delete(self, slot: Slot) -> Awaitable[GroupError | None]:
        """Remove an empty group and its offsets. The group is unavailable until the commit."""
        assert slot.group.state is GroupState.EMPTY
        self._deliver(slot.group.die(GroupError.UNAVAILABLE))
        group_id = slot.group.group_id
        keys = slot.offsets.everything()
        rows: list[Record] = [(encode_offset_key(group_id, *key), None) for key in keys]
        rows.append((encode_group_key(group_id), None))
        change = slot.offsets.begin(dict.fromkeys(keys))
        commit = self._append(slot, rows)
        return asyncio.shield(self._tasks.start(self._deleting(slot, change, commit)))

    async def _deleting(
        self, slot: Slot, change: Change, commit: Awaitable[None]
    ) -> GroupError | None:
        group_id = slot.group.group_id
        try:
            await commit
        except NeveError as error:
            slot.offsets.failed(change)
            if self._slots.get(group_id) is slot:
                slot.group.revive()
            return group_error_for(error)
        slot.offsets.committed(change)
        if self._slots.get(group_id) is slot:
            self._drop(group_id)
        event(_log, logging.INFO, "group deleted", group=group_id, offsets=len(change.offsets))
        return None


def _log_state(group: Group) -> None:
    about = {
        "group": group.group_id,
        "generation": group.generation,
        "members": len(group.members),
        "protocol": group.protocol_name,
    }
    if group.state is GroupState.STABLE:
        event(_log, logging.INFO, "group rebalanced", **about)
    elif group.state is GroupState.EMPTY:
        event(_log, logging.INFO, "group has no members", **about)
    elif group.state is GroupState.PREPARING:
        event(_log, logging.DEBUG, "group rebalances", **about)


async def _refused(error: NeveError) -> None:
    raise error
