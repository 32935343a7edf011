"""Bugs of many brokers, put into the real code: the simulation of a cluster must find each."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from neve import runtime
from neve.broker.admin.partitions import LeadershipCheck
from neve.broker.broker import Broker
from neve.cluster import fold as cluster_fold
from neve.cluster import log as cluster_log
from neve.cluster import log_view, membership, recovery
from neve.cluster import node as cluster_node
from neve.cluster.followed_stream import READS_AT_ONCE, FollowedStream
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.purge import Purge
from neve.cluster.records import Handover, Release
from neve.cluster.release import PartitionReleases
from neve.cluster.replication import Replication
from neve.errors import NeveError
from neve.log import tail
from neve.log.replica import ReplicaLog
from neve.store.faults import Faults, Latencies, Latency
from simulation.network_plan import SETTINGS, Plan


@contextlib.contextmanager
def no_seal() -> Iterator[None]:
    """A successor serves without having ended the stream of the process before it."""
    with (
        mock.patch.object(recovery._Recovery, "must_seal", return_value=False),
        mock.patch.object(membership, "Sealer"),
    ):
        yield


@contextlib.contextmanager
def manifest_before_the_tail() -> Iterator[None]:
    """A successor reads the manifest first, and no promised end shows what it missed."""
    examine = recovery._Attempt.examine

    async def hasty(self: Any, log: Any, state: Any, *, again: bool) -> Any:
        known = await log.manifest.refresh()

        async def refresh(_: object = None) -> Any:
            return known

        with mock.patch.object(log.manifest, "refresh", refresh):
            return await examine(self, log, state, again=again)

    with (
        mock.patch.object(recovery._Attempt, "examine", hasty),
        mock.patch.object(tail, "promised_end", return_value=0),
    ):
        yield


@contextlib.contextmanager
def release_before_the_last_commit() -> Iterator[None]:
    """An owner releases a partition while records of it are on their way to the store."""

    async def at_once(self: PartitionReleases) -> bool:
        return self._writer.ended is None

    with mock.patch.object(PartitionReleases, "_committed", at_once):
        yield


@contextlib.contextmanager
def resume_while_undecided() -> Iterator[None]:
    """An owner serves a partition again though its release may still land."""

    async def once(self: PartitionReleases, handovers: list[Handover]) -> None:
        def derive(state: Any) -> Any:
            rows = tuple(row for row in handovers if self._applies(state, row))
            return Release(rows) if rows else None

        with contextlib.suppress(NeveError):
            await self._cluster.propose(derive)

    with mock.patch.object(PartitionReleases, "_decide", once):
        yield


@contextlib.contextmanager
def accept_a_dead_leader() -> Iterator[None]:
    """Rows that name a process which has ended count, and it proposes them."""

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
def answer_without_a_look() -> Iterator[None]:
    """A deposed leader says where the log ends."""

    async def trusting(self: LeadershipCheck, leader: PartitionLeader) -> None:
        del self, leader

    with mock.patch.object(LeadershipCheck, "check", trusting):
        yield


@contextlib.contextmanager
def follow_out_of_order() -> Iterator[None]:
    """A follower takes what it finds behind a number that is not there yet."""
    read_on = FollowedStream.read_on

    async def eager(self: FollowedStream) -> bool:
        if self.position is None or self.sealed:
            return await read_on(self)
        first = self.position
        numbers = range(first, first + READS_AT_ONCE)
        found = await runtime.gather(*(self._reader.number(number) for number in numbers))
        for number, (item, _) in zip(numbers, found, strict=True):
            if item is not None:
                self.position = number
                self._take(number, item)
        return self.position > first or await read_on(self)

    def any_later(self: ReplicaLog, entry: Any) -> bool:
        return bool(entry.leader_epoch == self.epoch)

    with (
        mock.patch.object(FollowedStream, "read_on", eager),
        mock.patch.object(ReplicaLog, "follows", any_later),
        mock.patch.object(Replication, "_is_due", return_value=True),
    ):
        yield


@contextlib.contextmanager
def purge_without_asking() -> Iterator[None]:
    """A topic is purged though a live broker may not have read of its deletion."""
    with mock.patch.object(Purge, "_awaited", return_value=[]):
        yield


@contextlib.contextmanager
def claim_to_have_dropped() -> Iterator[None]:
    """A broker says that it has dropped what is deleted by numbers that it has not read."""
    with mock.patch.object(Purge, "dropped_below", return_value=1 << 40):
        yield


@contextlib.contextmanager
def answer_administrators_at_once() -> Iterator[None]:
    """A broker does not look for what is new in the cluster log before it makes a change."""

    async def trusting(self: Broker) -> None:
        # As if it had looked: nobody is told that the answer may be old.
        self.node.cluster.read_at = max(self.node.cluster.read_at, runtime.monotonic())

    with mock.patch.object(Broker, "read_cluster_log", trusting):
        yield


BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "no seal": no_seal,
    "manifest before the tail": manifest_before_the_tail,
    "release before the last commit": release_before_the_last_commit,
    "resume while undecided": resume_while_undecided,
    "accept a dead leader": accept_a_dead_leader,
    "answer without a look": answer_without_a_look,
    "follow out of order": follow_out_of_order,
    "purge without asking": purge_without_asking,
    "claim to have dropped": claim_to_have_dropped,
    "answer administrators at once": answer_administrators_at_once,
}

# More of what a bug needs, and less of the rest, so that few seeds find it.
FEW = Plan(
    near=0,
    groups=0,
    has_topic_churn=False,
    batches=60,
    troublemakers=1,
    calm_seconds=2.0,
    faults=Faults(),
)
QUICK_TO_TIER = dataclasses.replace(
    SETTINGS,
    segment=dataclasses.replace(SETTINGS.segment, ms=200),
    wal=dataclasses.replace(SETTINGS.wal, tail_objects=2),
    # An owner that cannot read the cluster log goes on tiering for longer.
    cluster=dataclasses.replace(SETTINGS.cluster, purge_delay_ms=60_000),
)
QUICK_TO_PURGE = dataclasses.replace(
    SETTINGS,
    segment=dataclasses.replace(SETTINGS.segment, ms=300),
    wal=dataclasses.replace(SETTINGS.wal, tail_objects=8),
    cluster=dataclasses.replace(SETTINGS.cluster, purge_delay_ms=500),
)
DELETING = dataclasses.replace(
    FEW, chaos=("delete a topic",), calm_seconds=1.0, settings=QUICK_TO_PURGE
)
# A follower often looks for numbers that are not committed yet.
QUICK_TO_LOOK = dataclasses.replace(
    SETTINGS, cluster=dataclasses.replace(SETTINGS.cluster, follow_ms=100)
)
SLOW_WRITES = Latencies.of(write=Latency(80, 390), read=Latency(4, 30))
LIKELY: dict[str, Plan] = {
    "no seal": dataclasses.replace(FEW, chaos=("shun", "pause", "expire")),
    "manifest before the tail": dataclasses.replace(
        FEW,
        chaos=("expire unheard",),
        calm_seconds=5.0,
        batches=70,
        settings=QUICK_TO_TIER,
        partitions=30,
        producers=3,
    ),
    "release before the last commit": dataclasses.replace(
        FEW, chaos=("drain",), latencies=SLOW_WRITES
    ),
    "resume while undecided": dataclasses.replace(
        FEW, chaos=("cluster log slow",), faults=Faults(late_ms_max=4_000)
    ),
    "accept a dead leader": dataclasses.replace(FEW, chaos=("expire", "drain", "crash")),
    "answer without a look": dataclasses.replace(FEW, chaos=("shun",)),
    "follow out of order": dataclasses.replace(
        FEW,
        chaos=("crash behind a gap",),
        calm_seconds=5.0,
        batches=40,
        settings=QUICK_TO_LOOK,
        near=3,
        partitions=3,
    ),
    "purge without asking": DELETING,
    "claim to have dropped": DELETING,
    "answer administrators at once": dataclasses.replace(FEW, has_topic_churn=True),
}
