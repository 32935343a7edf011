"""Purge of deleted topics: delete their objects, then forget them.

A topic's objects lie under a prefix that carries its random id, so they are never mistaken for
another topic's. The purge only has to know when no process can add objects any more. A topic is
forgotten once three conditions hold: every process that was live when it was deleted has dropped it
or has ended; then a delay has passed in which slower processes must have given up; then a sweep
found the prefix empty. The oldest live broker does all this. Its successor starts over, because
the cluster log has what is still to be done, and two at once do no harm.

A process says that it has dropped a topic in its answers to pings, by a number of the cluster log.
docs/contributors/cluster.md has the whole argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.placement import is_janitor
from neve.cluster.recovery import raise_first
from neve.cluster.state import BrokerRegistration, ClusterState, Topic, is_live
from neve.errors import NeveError, UnavailableError
from neve.log.keys import topic_prefix
from neve.serving.logs import event
from neve.store.deletion import delete_all
from neve.store.port import Store

_log = logging.getLogger(__name__)

# The most sweeps of one prefix in a row. If it is not empty then, the next round continues.
SWEEPS_MAX = 10

# How many processes are asked at once what they have dropped.
ASKED_AT_ONCE = 16


class Purge:
    """Purges deleted topics for one node.

    `ask` asks another process up to which number it has dropped deleted topics.
    """

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
        self.ask: Callable[[BrokerRegistration], Coroutine[Any, Any, int | None]] = _no_answer
        self._heard: dict[int, int] = {}  # by incarnation: it has dropped all deleted below this
        self._examined: ClusterState | None = None
        self._undropped: dict[str, Topic] = {}  # of that state, what we may still write to
        self._dropped: set[str] = set()  # never iterated
        self._swept: set[str] = set()  # topics whose objects were deleted once; never iterated
        self._quiet_since: dict[str, float] = {}

    # -- what processes say of themselves --------------------------------------------------------

    def dropped_below(self) -> int:
        """Return the number below which this process has dropped every topic that was deleted.

        It has no work left on them and begins none: it never returns less later.
        """
        state = self._cluster.state
        if state is not self._examined:
            self._examined = state
            self._dropped.intersection_update(state.deleted)
            self._undropped = {
                key: topic for key, topic in state.deleted.items() if key not in self._dropped
            }
        for topic in list(self._undropped.values()):
            if self._has_dropped(topic):
                self._dropped.add(topic.topic_id)
                del self._undropped[topic.topic_id]
        numbers = (topic.deleted_at for topic in self._undropped.values())
        return min(numbers, default=self._cluster.view.position)

    def heard(self, incarnation: int, dropped_below: int) -> None:
        """Note what another process has said of itself."""
        if incarnation not in self._heard:
            brokers = self._cluster.state.brokers
            self._heard = {key: row for key, row in self._heard.items() if is_live(brokers, key)}
        self._heard[incarnation] = max(dropped_below, self._heard.get(incarnation, 0))

    def _has_dropped(self, topic: Topic) -> bool:
        """Whether this process can write no more objects of it."""
        return not self._led.may_write(topic.topic_id) and not self._is_taking_over(topic.topic_id)

    def _has_heard(self, topic: Topic, writer: int) -> bool:
        """Whether another process has said that it has dropped the topic."""
        return 0 < topic.deleted_at < self._heard.get(writer, 0)

    def _awaited(self, topic: Topic) -> list[int]:
        """The other processes that may still write objects of it, for all that is known."""
        others = (row for row in topic.writers if row != self._incarnation)
        return [row for row in others if not self._has_heard(topic, row)]

    # -- rounds ----------------------------------------------------------------------------------

    @property
    def _is_janitor(self) -> bool:
        return is_janitor(self._cluster.state, self._incarnation)

    def due(self) -> bool:
        """Whether a round could do anything, known without a request to the store."""
        return self._needs_store() or bool(self._to_ask())

    def _needs_store(self) -> bool:
        return any(self._is_due(topic) for topic in self._cluster.state.deleted.values())

    def _is_due(self, topic: Topic) -> bool:
        if self._must_record(topic):
            return True
        if not self._is_janitor:
            return False
        if topic.topic_id not in self._swept:
            return True
        if topic.topic_id not in self._quiet_since:
            return self._is_quiet(topic)
        return self._may_be_forgotten(topic)

    async def purge(self) -> int:
        """Run the due steps for each deleted topic. Returns how many objects were deleted."""
        await self._ask_writers()
        if not self._needs_store():
            return 0
        await self._cluster.refresh()
        await self._record_dropped()
        if not self._is_janitor:
            return 0
        gone = 0
        failures: list[NeveError] = []
        for topic in list(self._cluster.state.deleted.values()):
            try:
                if topic.topic_id not in self._swept:
                    gone += await self._sweep(topic)
                    self._swept.add(topic.topic_id)
            except NeveError as error:
                failures.append(error)
        await self._ask_writers()
        for topic in list(self._cluster.state.deleted.values()):
            try:
                gone += await self._forget_if_due(topic)
            except NeveError as error:
                failures.append(error)
        raise_first(failures)
        return gone

    def _to_ask(self) -> list[BrokerRegistration]:
        """The processes that a topic waits for: none unless this process is the janitor."""
        state = self._cluster.state
        if not state.deleted or not self._is_janitor:
            return []
        awaited = {row for topic in state.deleted.values() for row in self._awaited(topic)}
        return [
            row
            for key, row in sorted(state.brokers.items())
            if key in awaited and row.live and row.port
        ]

    async def _ask_writers(self) -> None:
        """Ask the processes that topics wait for what they have dropped, a few at a time."""
        targets = self._to_ask()
        for at in range(0, len(targets), ASKED_AT_ONCE):
            asked = targets[at : at + ASKED_AT_ONCE]
            answers = await runtime.gather(*(self.ask(row) for row in asked))
            for row, dropped in zip(asked, answers, strict=True):
                if dropped is not None:
                    self.heard(row.incarnation, dropped)

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

    def _must_record(self, topic: Topic) -> bool:
        """Whether other processes may wait for a record that this one has dropped the topic.

        Only where an answer to a ping does not say it: a process without an address gets none, and
        topics that were deleted below feature level 2 have no number.
        """
        if self._incarnation not in topic.writers or not self._has_dropped(topic):
            return False
        brokers = self._cluster.state.brokers
        if topic.deleted_at and brokers[self._incarnation].port:
            return False
        return any(row.live and row.incarnation != self._incarnation for row in brokers.values())

    async def _record_dropped(self) -> None:
        deleted = self._cluster.state.deleted.values()
        rows = [row.topic_id for row in deleted if self._must_record(row)]
        if rows:
            await self._cluster.dropped(self._incarnation, rows)

    def _is_quiet(self, topic: Topic) -> bool:
        """Whether every process that could write objects of it is known to have stopped."""
        return not self._awaited(topic) and self._has_dropped(topic)

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
        about = {"topic": topic.name, "topic_id": topic.topic_id}
        event(_log, logging.INFO, "topic purged", **about)
        self._swept.discard(topic.topic_id)
        self._quiet_since.pop(topic.topic_id, None)
        return gone


async def _no_answer(target: BrokerRegistration) -> int | None:
    del target
    return None
