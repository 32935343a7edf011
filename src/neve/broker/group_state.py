"""Where groups and their offsets are kept: the partitions of an internal topic that we lead.

The topic is made when the first group needs it. A partition's groups are loaded from its state
table: the last STATE section and what was committed after it, however long its history is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from neve import runtime
from neve.cluster.log import TopicExistsError
from neve.cluster.node import Node
from neve.cluster.state import Topic
from neve.coordinator.groups import Complain, Groups
from neve.coordinator.offset_requests import TopicFacts
from neve.errors import ClosedError, NeveError, StoreError
from neve.log.partition import PartitionLog
from neve.records.reference import Record, build_batch
from neve.settings import GroupSettings

log_line = logging.getLogger("neve.broker.groups")

GROUPS_TOPIC = "__consumer_offsets"
# Small segments: what is loaded at a start is the last table and at most one segment's records.
_CONFIGS = {"segment.bytes": str(8 * 1024 * 1024)}


class GroupState:
    """The groups of one broker, over its node."""

    def __init__(
        self, node: Node, settings: GroupSettings, complain: Complain = lambda *_: None
    ) -> None:
        self._node = node
        self._settings = settings
        self._making = asyncio.Lock()
        self._tasks = runtime.Tasks(_failed)
        self._settled: set[int] = set()  # partitions that are loaded, or never can be
        self._is_catching_up = False
        self.groups = Groups(settings, _Topics(node), _failed, complain, node.memory)
        node.broker_configs.on_change.append(self._configure)

    def _configure(self) -> None:
        self.groups.configure(self._node.broker_configs.settings.groups)

    async def load(self) -> None:
        """Load what there is, and begin to serve groups."""
        self.groups.start()
        topic = self._node.topic(GROUPS_TOPIC)
        if topic is not None:
            await self._load(topic)

    async def ensure(self) -> None:
        """Make the internal topic if there is none yet.

        What of it could not be led or loaded before is tried again, and not waited for: clients ask
        once more, and groups that are served already must not wait for others.
        """
        async with self._making:
            topic = self._node.topic(GROUPS_TOPIC)
            if topic is None:
                await self._load(await self._made())
            elif not self.is_whole and not self._is_catching_up:
                self._is_catching_up = True
                self._tasks.start(self._catch_up(topic), name="late groups")

    @property
    def is_whole(self) -> bool:
        """Whether all there is of the internal topic is served: nothing has to be ensured."""
        topic = self._node.topic(GROUPS_TOPIC)
        return topic is not None and len(self._settled) == len(topic.partitions)

    async def _made(self) -> Topic:
        try:
            return await self._node.create_topic(GROUPS_TOPIC, self._settings.partitions, _CONFIGS)
        except TopicExistsError:  # an earlier try went further than it knew
            await self._node.takeover.lead_unled()
            found = self._node.topic(GROUPS_TOPIC)
            assert found is not None
            return found

    async def _catch_up(self, topic: Topic) -> None:
        try:
            await self._load(topic)
        finally:
            self._is_catching_up = False

    async def _load(self, topic: Topic) -> None:
        self.groups.spread_over(len(topic.partitions))
        missing = [at for at in range(len(topic.partitions)) if at not in self._settled]
        await runtime.gather(*(self._load_partition(topic, number) for number in missing))

    async def _load_partition(self, topic: Topic, number: int) -> None:
        leader = self._node.leader_of(topic.id_bytes, number)
        if leader is None:
            return  # its groups are answered NOT_COORDINATOR
        log = leader.log
        try:
            rows = await log.load_state()
            await self.groups.load(number, rows, _PartitionStateLog(self._node, log))
        except StoreError as error:
            log_line.error("the groups of %s cannot be served yet: %s", log.name, error)
        except NeveError as error:
            self._settled.add(number)
            log_line.error("the groups of %s cannot be served: %s", log.name, error)
        else:
            self._settled.add(number)

    async def close(self) -> None:
        await self._tasks.close()
        await self.groups.close()


class _Topics:
    """What there is to commit offsets for."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def lookup(self, name: str) -> TopicFacts | None:
        topic = self._node.topic(name)
        return None if topic is None else TopicFacts(topic.id_bytes, len(topic.partitions))

    async def refresh(self) -> None:
        await self._node.cluster.refresh()


class _PartitionStateLog:
    """One partition of the internal topic, written by the coordinator alone."""

    def __init__(self, node: Node, log: PartitionLog) -> None:
        self._node = node
        self._log = log

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Return when the records are committed."""
        if self._log.closed is not None:
            raise ClosedError(f"{self._log.name} is no longer led here")
        now_ms = runtime.now_ms()
        rows = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)]
        # Commits go on while producers have filled the buffer: it may overflow by what groups
        # have on their way, which is bounded where they hand it in.
        done = self._log.append(bytearray(build_batch(rows)), admitted=True)
        await done.commit.wait()


def _failed(failure: BaseException) -> None:
    log_line.error("work on groups failed", exc_info=failure)
