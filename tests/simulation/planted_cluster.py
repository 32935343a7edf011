"""Bugs that a cluster has had, put back into the real code: its simulation must find each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from unittest import mock

from neve.broker.admin.partitions import LeadershipCheck
from neve.cluster import fold as cluster_fold
from neve.cluster import log as cluster_log
from neve.cluster import log_view
from neve.cluster import node as cluster_node
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.recovery import raise_first
from neve.cluster.state import PartitionKey, Topic
from neve.cluster.stream_rollups import StreamRollups
from neve.cluster.takeover import Takeover
from neve.errors import NeveError, NotFoundError
from neve.log.wal.reader import WalReader
from neve.log.wal.rollup import trim


@contextlib.contextmanager
def skip_recovery_of_a_whole_topic() -> Iterator[None]:
    """A topic that just grew is led as if all of its partitions were new."""

    async def careless(self: Takeover, topic: Topic, created: Collection[int]) -> None:
        del created
        rows = [(topic.topic_id, number) for number in range(len(topic.partitions))]
        self._created.update(rows)
        raise_first(list((await self._lead(rows)).values()))

    with mock.patch.object(Takeover, "lead_created", careless):
        yield


@contextlib.contextmanager
def answer_by_time_without_a_look() -> Iterator[None]:
    """A deposed leader says that nothing is as young as it was asked for."""

    async def trusting(self: LeadershipCheck, leader: PartitionLeader) -> None:
        del self, leader

    with mock.patch.object(LeadershipCheck, "check", trusting):
        yield


@contextlib.contextmanager
def lead_by_a_process_that_is_over() -> Iterator[None]:
    """Rows that name a process which is over count, and it proposes them."""

    def always(*_: object) -> bool:
        return True

    with (
        mock.patch.object(cluster_fold, "is_live", always),
        mock.patch.object(cluster_log, "is_live", always),
        mock.patch.object(log_view, "is_live", always),
        mock.patch.object(cluster_node, "is_live", always),
    ):
        yield


@contextlib.contextmanager
def rush_after_a_failed_roll_up() -> Iterator[None]:
    """The loop waits for a time that has passed."""

    async def rushing(self: BackgroundLoops) -> None:
        while self._node.ended is None:
            if self._node.rollups.due():
                await self._attempt("rolling up", self._node.rollups.roll_up)
            await self._wait(self._not_before.get("rolling up"))

    with mock.patch.object(BackgroundLoops, "_roll_up", rushing):
        yield


@contextlib.contextmanager
def one_take_over_at_a_time() -> Iterator[None]:
    """Every take-over waits for all others."""
    lead = Takeover._lead
    locks: dict[Takeover, asyncio.Lock] = {}

    async def queued(
        self: Takeover, wanted: Sequence[PartitionKey]
    ) -> dict[PartitionKey, NeveError]:
        async with locks.setdefault(self, asyncio.Lock()):
            return await lead(self, wanted)

    with mock.patch.object(Takeover, "_lead", queued):
        yield


@contextlib.contextmanager
def sweep_what_was_retired() -> Iterator[None]:
    """A stream that was retired before it was swept is damaged for ever."""

    async def stubborn(self: StreamRollups) -> None:
        async with self._sweeping:
            for incarnation, end in list(self.unswept.items()):
                reader = WalReader(self._store, incarnation, self._settings.prefetch)
                try:
                    tail = await reader.tail()
                    if tail.checkpoint < end:
                        await self._roll_up(reader, tail, end)
                    await trim(self._store, reader, end=end)
                except NotFoundError:
                    pass
                self.unswept.pop(incarnation, None)

    with mock.patch.object(StreamRollups, "sweep", stubborn):
        yield


BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "skip the recovery of a whole topic": skip_recovery_of_a_whole_topic,
    "answer by time without a look": answer_by_time_without_a_look,
    "lead by a process that is over": lead_by_a_process_that_is_over,
    "rush after a failed roll-up": rush_after_a_failed_roll_up,
    "one take-over at a time": one_take_over_at_a_time,
    "sweep what was retired": sweep_what_was_retired,
}
