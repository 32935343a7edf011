"""`__consumer_offsets`: the topic that stores the groups which this broker coordinates.

A group belongs to one partition of the topic, and the leader of that partition coordinates it. When
this broker becomes the leader, it loads the partition's groups from its state table (the last STATE
section and all records committed after it). When it loses the partition, it unloads them. The topic
is created when the first client asks for a coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from neve import runtime
from neve.cluster.log import TopicExistsError
from neve.cluster.node import Node
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.state import Topic
from neve.coordinator.group_partition import partition_of
from neve.coordinator.groups import Complain, Groups
from neve.coordinator.offset_requests import TopicFacts
from neve.errors import ClosedError, NeveError, StoreError
from neve.records.reference import Record, build_batch
from neve.settings import GroupSettings

log_line = logging.getLogger("neve.broker.groups")

OFFSETS_TOPIC = "__consumer_offsets"
# Small segments: a load reads the last table and at most one segment of records.
_CONFIGS = {"segment.bytes": str(8 * 1024 * 1024)}


class OffsetsTopic:
    """The groups of one broker. Call `load` once, and `close` before the node's."""

    def __init__(
        self, node: Node, settings: GroupSettings, complain: Complain = lambda *_: None
    ) -> None:
        self._node = node
        self._settings = settings
        self._creating = asyncio.Lock()
        self._tasks = runtime.Tasks(_failed)
        self._is_closed = False
        self._loads: dict[PartitionLeader, asyncio.Task[None]] = {}
        self._settled: set[PartitionLeader] = set()  # loaded, or damaged: not loaded again
        self.groups = Groups(settings, _Topics(node), _failed, complain, node.memory)
        node.broker_configs.on_change.append(self._configure)
        node.led.on_led.append(self._led)
        node.led.on_lost.append(self._lost)

    def _configure(self) -> None:
        self.groups.configure(self._node.broker_configs.settings.groups)

    async def load(self) -> None:
        """Serve groups, once those of all partitions led here are loaded."""
        self.groups.start()
        await self._load_led()

    async def ensure(self) -> None:
        """Create the internal topic if it does not exist, and load its groups.

        If it exists, partitions whose groups could not be loaded are retried in the background:
        clients ask again, and must not wait for groups other than their own.
        """
        async with self._creating:
            if self._node.cluster.state.topic(OFFSETS_TOPIC) is None:
                await self._create()
                await self._load_led()
            else:
                self._retry()

    @property
    def is_loaded(self) -> bool:
        """Whether the internal topic exists, and every partition led here is loaded or damaged."""
        if self._node.cluster.state.topic(OFFSETS_TOPIC) is None:
            return False
        return all(leader in self._settled for leader in self._leaders())

    def partition_of(self, group_id: str) -> tuple[Topic, int] | None:
        """The internal topic, and the partition of it that keeps a group; None before it exists."""
        topic = self._node.cluster.state.topic(OFFSETS_TOPIC)
        if topic is None:
            return None
        return topic, partition_of(group_id, len(topic.partitions))

    async def _create(self) -> None:
        try:
            await self._node.topics.create(OFFSETS_TOPIC, self._settings.partitions, _CONFIGS)
        except TopicExistsError:  # created by an earlier attempt or by another broker
            await self._node.takeover.lead_unled()

    # -- following leadership ----------------------------------------------------------------

    def _leaders(self) -> list[PartitionLeader]:
        """The partitions of the internal topic that this broker leads."""
        topic = self._node.cluster.state.topic(OFFSETS_TOPIC)
        if topic is None:
            return []
        found = (self._node.leader_of(topic.id_bytes, at) for at in range(len(topic.partitions)))
        return [leader for leader in found if leader is not None]

    def _led(self, leader: PartitionLeader) -> None:
        topic = self._node.cluster.state.topic(OFFSETS_TOPIC)
        if topic is None or topic.id_bytes != leader.log.topic_id or self._is_closed:
            return
        self._start_load(leader)

    def _lost(self, leader: PartitionLeader) -> None:
        """Unload the groups of a lost partition. Waiting members get NOT_COORDINATOR."""
        load = self._loads.pop(leader, None)
        if load is not None:
            load.cancel()
        if load is not None or leader in self._settled:
            self._settled.discard(leader)
            self.groups.unload(leader.log.partition)

    async def _load_led(self) -> None:
        self._retry()
        loads = list(self._loads.values())
        if loads:
            await asyncio.wait(loads)

    def _retry(self) -> None:
        for leader in self._leaders():
            if leader not in self._settled:
                self._start_load(leader)

    def _start_load(self, leader: PartitionLeader) -> None:
        topic = self._node.cluster.state.topic(OFFSETS_TOPIC)
        if topic is not None and leader not in self._loads:
            self.groups.spread_over(len(topic.partitions))
            self.groups.begin_load(leader.log.partition)
            self._loads[leader] = self._tasks.start(self._load(leader), name="group load")

    async def _load(self, leader: PartitionLeader) -> None:
        is_served = False
        try:
            rows = await leader.log.load_state()
            await self.groups.load(leader.log.partition, rows, _PartitionStateLog(leader))
        except StoreError as error:
            log_line.error("the groups of %s cannot be served yet: %s", leader.name, error)
        except NeveError as error:
            self._settled.add(leader)
            log_line.error("the groups of %s cannot be served: %s", leader.name, error)
        else:
            self._settled.add(leader)
            is_served = True
        finally:
            # If the partition was lost, its groups are unloaded, or loaded under a later epoch.
            is_current = self._loads.pop(leader, None) is not None
            if is_current and not is_served:
                self.groups.unload(leader.log.partition)

    async def close(self) -> None:
        self._is_closed = True
        await self._tasks.close()
        await self.groups.close()


class _Topics:
    """The topics that offsets can be committed for."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def lookup(self, name: str) -> TopicFacts | None:
        topic = self._node.cluster.state.topic(name)
        return None if topic is None else TopicFacts(topic.id_bytes, len(topic.partitions))

    async def refresh(self) -> None:
        await self._node.cluster.refresh()


class _PartitionStateLog:
    """One partition of the internal topic. Only the coordinator writes to it."""

    def __init__(self, leader: PartitionLeader) -> None:
        self._leader = leader

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Return when the records are committed."""
        if not self._leader.is_leading:
            raise ClosedError(f"{self._leader.name} is no longer led here")
        now_ms = runtime.now_ms()
        rows = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)]
        # Groups may append while producers have filled the buffer. The coordinator bounds what it
        # has in flight, and so the overflow.
        done = self._leader.append(bytearray(build_batch(rows)), admitted=True)
        await done.commit.wait()


def _failed(failure: BaseException) -> None:
    log_line.error("a background task of the groups failed", exc_info=failure)
