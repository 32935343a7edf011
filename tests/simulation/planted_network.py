"""Bugs of many brokers, put into the real code: the simulation of a cluster must find each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from neve.broker.admin.partitions import LeadershipCheck
from neve.cluster import fold as cluster_fold
from neve.cluster import log as cluster_log
from neve.cluster import log_view, membership, recovery
from neve.cluster import node as cluster_node
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.purge import Purge
from neve.cluster.records import Handover, Release
from neve.cluster.release import PartitionReleases
from neve.errors import NeveError
from neve.log import tail


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
def purge_without_asking() -> Iterator[None]:
    """A topic is purged though a live broker may not have read of its deletion."""
    with mock.patch.object(Purge, "_awaited", return_value=[]):
        yield


@contextlib.contextmanager
def claim_to_have_dropped() -> Iterator[None]:
    """A broker says that it has dropped what is deleted by numbers that it has not read."""
    with mock.patch.object(Purge, "dropped_below", return_value=1 << 40):
        yield


BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "no seal": no_seal,
    "manifest before the tail": manifest_before_the_tail,
    "release before the last commit": release_before_the_last_commit,
    "resume while undecided": resume_while_undecided,
    "accept a dead leader": accept_a_dead_leader,
    "answer without a look": answer_without_a_look,
    "purge without asking": purge_without_asking,
    "claim to have dropped": claim_to_have_dropped,
}
