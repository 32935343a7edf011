"""The background loops of a broker: tier, roll up, retain, collect, purge, watch, take over.

The loops wait for work that is due and never scan all partitions. An idle broker, with any number
of partitions, sends three GETs each `cluster.poll.ms`, or more rarely while other brokers send it
their positions in the cluster log. A failure is logged once and retried after a growing pause. It
neither ends a loop nor delays other partitions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from neve import runtime
from neve.cluster.failures import Failures
from neve.cluster.liveness.heartbeat import delete_heartbeats
from neve.cluster.node import Node
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.placement import is_janitor
from neve.cluster.state import PartitionKey, level_of_all
from neve.cluster.stream_ends import OwnStreamEnds, delete_stream_ends
from neve.cluster.streams import retire_streams
from neve.errors import DamagedError, NeveError, NotFoundError
from neve.log.wal.stores import WalStoreUnavailableError
from neve.settings import Settings

_log = logging.getLogger(__name__)
_TIERING, _RETENTION, _COLLECTING = "tiering %s", "retention of %s", "collecting %s"
_LEADING = "leading partition %s/%d"
INFORMED_POLLS = 12
"""A broker that hears the positions of others looks into the bucket this much more rarely."""


class BackgroundLoops:
    """The background loops of one node. Call `start` once, and `close` before the node's.

    `on_fenced` is called once if this incarnation has ended.
    """

    def __init__(
        self,
        node: Node,
        settings: Settings,
        *,
        on_fenced: Callable[[NeveError], None] = lambda _: None,
    ) -> None:
        self._node = node
        self._settings = settings.maintenance
        self._poll_seconds = settings.cluster.poll_ms / 1000
        self._tasks = runtime.Tasks(on_failure=self._loop_failed)
        self._failures = Failures(_log)
        self._not_before: dict[str, float] = {}
        self._committed_end = -1
        self._ends = OwnStreamEnds(
            node.store, node.incarnation, node.cluster, node.led, node.queues
        )
        node.on_end(on_fenced)
        node.led.on_lost.append(self._forget)

    def start(self) -> None:
        """Start the loops. Each first waits for its interval, or until work is due."""
        for at in range(self._settings.tiering_concurrency):
            self._begin(self._tier(), f"maintenance-tier-{at}")
        self._begin(self._roll_up(), "maintenance-roll-up")
        self._begin(self._retain(), "maintenance-retain")
        self._begin(
            self._every(self._settings.interval_ms / 1000, self._check_streams),
            "maintenance-streams",
        )
        self._begin(
            self._every(self._settings.interval_ms / 1000, self._purge), "maintenance-purge"
        )
        self._begin(
            self._every(self._settings.gc_interval_ms / 1000, self._collect), "maintenance-collect"
        )
        self._begin(self._lead(), "maintenance-lead")
        self._begin(self._watch(), "maintenance-watch")
        if self._stream_is_apart():
            self._begin(self._watch_stream(), "maintenance-watch-stream")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, name=name)

    def _forget(self, leader: PartitionLeader) -> None:
        for what in (_TIERING, _RETENTION, _COLLECTING):
            self._failures.forget(what % leader.name)
            self._not_before.pop(what % leader.name, None)

    def _loop_failed(self, failure: BaseException) -> None:
        _log.error("a background loop has ended", exc_info=failure)

    async def close(self) -> None:
        """Stop the loops. Unfinished writes are abandoned, as in a crash, and redone later."""
        await self._tasks.close()

    # -- loops -------------------------------------------------------------------------------

    async def _every(self, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        while self._node.ended is None:
            await runtime.sleep(seconds)
            if self._node.ended is None:
                await work()

    async def _next(self, due: runtime.DeadlineQueue[PartitionLeader]) -> PartitionLeader | None:
        """Wait for the partition that is due next. Returns None when the node has ended."""
        while self._node.ended is None:
            leader = due.pop(runtime.monotonic())
            if leader is not None:
                return leader
            await self._wait(due.next_at())
        return None

    async def _wait(self, until: float | None = None) -> None:
        """Wait until work may be due: until a time, or until the queues are notified."""
        seconds = None if until is None else max(0.0, until - runtime.monotonic())
        pause = self._settings.interval_ms / 1000
        await self._node.queues.wait(pause if seconds is None else min(seconds, pause))

    async def _tier(self) -> None:
        while (leader := await self._next(self._node.queues.tiering)) is not None:
            what = _TIERING % leader.name
            try:
                if not await leader.tier():
                    leader.postpone_tiering(self._settings.interval_ms / 1000)
                self._failures.succeeded(what)
            except Exception as error:
                leader.postpone_tiering(await self._failed(what, error))

    async def _retain(self) -> None:
        again_seconds = self._settings.retention_check_ms / 1000
        while (leader := await self._next(self._node.queues.retention)) is not None:
            what = _RETENTION % leader.name
            try:
                if leader.retention_due():
                    await leader.retain()
                self._failures.succeeded(what)
            except Exception as error:
                pause = max(again_seconds, await self._failed(what, error))
                leader.postpone_retention(pause)

    async def _roll_up(self) -> None:
        what = "rolling up"
        while self._node.ended is None:
            if self._node.rollups.due():
                await self._attempt(what, self._node.rollups.roll_up)
                # After a failure, wait for the retry: no other event makes the roll-up due.
                await self._wait(self._not_before.get(what))
            else:
                await self._wait()

    async def _attempt(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Run work unless it failed recently. Returns True if it succeeded."""
        if self._is_put_off(what):
            return False
        try:
            await work()
        except Exception as error:
            self._not_before[what] = runtime.monotonic() + await self._failed(what, error)
            return False
        self._succeeded(what)
        return True

    def _is_put_off(self, what: str) -> bool:
        return runtime.monotonic() < self._not_before.get(what, 0.0)

    def _succeeded(self, what: str) -> None:
        self._not_before.pop(what, None)
        self._failures.succeeded(what)

    async def _failed(self, what: str, error: Exception) -> float:
        """Log a failure, unless it is known or the node has ended. Returns the pause in seconds.

        A successor moves and deletes what we have read. To a superseded process that has not
        noticed yet, that looks like damage.
        """
        if isinstance(error, DamagedError | NotFoundError):
            with contextlib.suppress(NeveError):
                await self._check_incarnation()
        return 0.0 if self._node.ended is not None else self._failures.failed(what, error)

    # -- periodic work -------------------------------------------------------------------------

    async def _check_streams(self) -> None:
        node = self._node
        if node.rollups.unswept:
            await self._attempt("sweeping old streams", node.rollups.sweep)
        maintenance = node.maintenance
        if maintenance.has_tiered_streams():
            await self._attempt("recording tiered streams", maintenance.record_tiered_streams)
        state = node.cluster.state
        if level_of_all(state) > state.feature_level:
            await self._attempt("raising the feature level", node.cluster.raise_level)

    async def _lead(self) -> None:
        """Lead what the cluster log gives to this process, as soon as it has been read."""
        node = self._node
        while node.ended is None:
            await node.wait_for_change(self._settings.interval_ms / 1000)
            if node.ended is not None:
                return
            if node.maintenance.has_lost_records():
                give_up = node.maintenance.give_up_lost_records
                await self._attempt("giving up lost records", give_up)
            if self._ends.is_due():
                await self._attempt("noting where partitions began", self._ends.update)
            wanted = [row for row in node.takeover.unled() if not self._is_put_off(_LEADING % row)]
            if wanted:  # a slow take-over does not delay the next one
                self._begin(self._lead_unled(wanted), "maintenance-lead-partitions")

    async def _lead_unled(self, wanted: Sequence[PartitionKey]) -> None:
        failures: Mapping[PartitionKey, Exception]
        try:
            failures = await self._node.takeover.lead_unled(wanted)
        except Exception as error:
            failures = dict.fromkeys(wanted, error)
        for row in wanted:
            what = _LEADING % row
            if row in failures:
                pause = await self._failed(what, failures[row])
                self._not_before[what] = runtime.monotonic() + pause
            else:
                self._succeeded(what)

    async def _purge(self) -> None:
        if self._node.purging.due():
            await self._attempt("purging deleted topics", self._node.purging.purge)

    async def _collect(self) -> None:
        node = self._node
        for leader in list(node.queues.collectable):
            if not await self._attempt(_COLLECTING % leader.name, leader.collect):
                leader.reschedule()
        if is_janitor(node.cluster.state, node.incarnation):
            work = partial(retire_streams, node.store, node.cluster)
            await self._attempt("retiring streams", work)
            work = partial(delete_heartbeats, node.store, node.cluster)
            await self._attempt("deleting heartbeats", work)
            if node.cluster.state.wal_stores():
                work = partial(delete_stream_ends, node.store, node.cluster)
                await self._attempt("deleting the ends of streams", work)

    async def _watch(self) -> None:
        cluster, look_by = self._node.cluster, 0.0
        is_apart = self._stream_is_apart()
        while self._node.ended is None:
            is_behind = await cluster.wait_until_behind(self._poll_seconds)
            if self._node.ended is not None:
                return
            now = runtime.monotonic()
            # One broker looks for all that exchange positions.
            looks = not cluster.is_informed() or is_janitor(cluster.state, self._node.incarnation)
            if is_behind or looks or now >= look_by:
                look_by = now + INFORMED_POLLS * self._poll_seconds
                look = cluster.look if is_apart else self._look
                await self._attempt("watching the cluster log", look)

    async def _look(self) -> None:
        """Look for what is new in the cluster log, and whether this incarnation has ended."""
        await self._node.cluster.look()
        await self._check_stream()

    def _stream_is_apart(self) -> bool:
        """Whether our stream lies in another store than the cluster log."""
        return self._node.incarnation in self._node.cluster.state.wal_stores()

    async def _watch_stream(self) -> None:
        """Watch our stream where its store may be unreachable while the cluster log is not."""
        ends = self._ends

        async def look() -> None:
            try:
                await self._check_incarnation()
            except WalStoreUnavailableError:
                await ends.write()  # in case that store is gone for good
                raise
            await ends.clear()

        await self._every(
            self._poll_seconds, partial(self._attempt, "watching the own stream", look)
        )

    async def _check_incarnation(self) -> None:
        """Find out whether this incarnation has ended, which ends the node."""
        await self._node.cluster.refresh()
        await self._check_stream()

    async def _check_stream(self) -> None:
        """Look for a seal in our stream, unless it was written to since the last call."""
        node = self._node
        # A commit since the last check proves more than a check of the stream does.
        is_idle = node.writer.committed_end == self._committed_end
        self._committed_end = node.writer.committed_end
        if is_idle:
            await node.writer.still_leading()
