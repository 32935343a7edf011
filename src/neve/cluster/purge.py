"""Purge of deleted topics: delete their objects, then forget them.

A topic's objects lie under a prefix that carries its random id, so they are never mistaken for
another topic's. The purge only has to know when no process can add objects any more. A topic is
forgotten once three conditions hold: every process that was live when it was deleted has dropped it
or has ended; then a delay has passed in which slower processes must have given up; then a sweep
found the prefix empty. Any process may run any step, several may run it at once, and the next
process resumes after a crash, because the cluster log has what is still to be done.
docs/contributors/cluster.md has the whole argument.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.recovery import raise_first
from neve.cluster.state import Topic
from neve.errors import NeveError, UnavailableError
from neve.log.keys import topic_prefix
from neve.store.deletion import delete_all
from neve.store.port import Store

# The most sweeps of one prefix in a row. If it is not empty then, the next round continues.
SWEEPS_MAX = 10


class Purge:
    """Purges deleted topics for one node."""

    def __init__(
        self,
        store: Store,
        cluster: ClusterLog,
        incarnation: int,
        led: LedPartitions,
        *,
        delay_ms: int,
        is_taking_over: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._incarnation = incarnation
        self._led = led
        self._delay_seconds = delay_ms / 1000
        self._is_taking_over = is_taking_over
        self._swept: set[str] = set()  # topics whose objects were deleted once; never iterated
        self._quiet_since: dict[str, float] = {}

    def due(self) -> bool:
        """Whether a round could do anything, known without a request."""
        return any(self._is_due(topic) for topic in self._cluster.state.deleted.values())

    def _is_due(self, topic: Topic) -> bool:
        if topic.topic_id not in self._swept or self._drops(topic):
            return True
        if topic.topic_id not in self._quiet_since:
            return self._is_quiet(topic)
        return self._may_be_forgotten(topic)

    async def purge(self) -> int:
        """Run the due steps for each deleted topic. Returns how many objects were deleted."""
        await self._cluster.refresh()
        gone = 0
        failures: list[NeveError] = []
        for topic in list(self._cluster.state.deleted.values()):
            try:
                if topic.topic_id not in self._swept:
                    gone += await self._sweep(topic)
                    self._swept.add(topic.topic_id)
            except NeveError as error:
                failures.append(error)
        await self._record_dropped()
        for topic in list(self._cluster.state.deleted.values()):
            try:
                gone += await self._forget_if_due(topic)
            except NeveError as error:
                failures.append(error)
        raise_first(failures)
        return gone

    async def _sweep(self, topic: Topic) -> int:
        """Delete everything under the topic's prefix, until a listing finds nothing."""
        prefix = topic_prefix(topic.name, topic.id_bytes)
        gone = 0
        for _ in range(SWEEPS_MAX):
            keys = [row.key for row in await self._store.list(prefix)]
            if not keys:
                return gone
            await delete_all(self._store, keys)
            gone += len(keys)
        raise UnavailableError(prefix, f"topic {topic.name} is deleted and still being written")

    def _has_dropped(self, topic: Topic) -> bool:
        """Whether this process can write no more objects of it."""
        return not self._led.may_write(topic.topic_id) and not self._is_taking_over(topic.topic_id)

    def _drops(self, topic: Topic) -> bool:
        """Whether we have dropped it and other processes may wait for us to record that."""
        if self._incarnation not in topic.writers or not self._has_dropped(topic):
            return False
        brokers = self._cluster.state.brokers.values()
        return any(row.live and row.incarnation != self._incarnation for row in brokers)

    async def _record_dropped(self) -> None:
        rows = [row.topic_id for row in self._cluster.state.deleted.values() if self._drops(row)]
        if rows:
            await self._cluster.dropped(self._incarnation, rows)

    def _is_quiet(self, topic: Topic) -> bool:
        """Whether every process that could write objects of it is known to have stopped."""
        return set(topic.writers) <= {self._incarnation} and self._has_dropped(topic)

    def _may_be_forgotten(self, topic: Topic) -> bool:
        since = self._quiet_since.get(topic.topic_id)
        return since is not None and runtime.monotonic() - since >= self._delay_seconds

    async def _forget_if_due(self, topic: Topic) -> int:
        if topic.topic_id not in self._swept or not self._is_quiet(topic):
            return 0
        self._quiet_since.setdefault(topic.topic_id, runtime.monotonic())
        if not self._may_be_forgotten(topic):
            return 0
        gone = await self._sweep(topic)
        await self._cluster.purged(topic.topic_id)
        self._swept.discard(topic.topic_id)
        self._quiet_since.pop(topic.topic_id, None)
        return gone
