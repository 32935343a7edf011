"""What a broker does in the background: tier, roll up, retain, collect, purge, and watch.

Work waits for what is due and not for a look at every partition, so that an idle broker asks the
store for next to nothing however many partitions it leads: three small requests each
`cluster.poll.ms`, one listing each `maintenance.gc.interval.ms`. A failure is logged once and
retried after a growing pause; none ends a loop, and none keeps other partitions waiting.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from neve import runtime
from neve.cluster.failures import Failures
from neve.cluster.node import Node
from neve.cluster.takeover import PartitionKey
from neve.errors import DamagedError, NeveError, NotFoundError
from neve.log.partition import PartitionLog
from neve.settings import Settings

_log = logging.getLogger(__name__)
_TIERING, _RETENTION, _COLLECTING = "tiering %s", "retention of %s", "collecting %s"
_LEADING = "leading partition %s/%d"


class BackgroundLoops:
    """The background work of one node. `start` it once; `close` it before the node.

    `on_fenced` is called once, when this incarnation turns out to be over.
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
        node.on_end(on_fenced)
        node.led.on_drop.append(self._forget)

    def start(self) -> None:
        """Begin. Nothing is done before the first of each pause has passed, or work is due."""
        for at in range(self._settings.tiering_concurrency):
            self._begin(self._tier(), f"upkeep-tier-{at}")
        self._begin(self._roll_up(), "upkeep-roll-up")
        self._begin(self._retain(), "upkeep-retain")
        self._begin(self._every(self._settings.interval_ms / 1000, self._tend), "upkeep-tend")
        self._begin(self._every(self._settings.interval_ms / 1000, self._purge), "upkeep-purge")
        self._begin(
            self._every(self._settings.gc_interval_ms / 1000, self._collect), "upkeep-collect"
        )
        self._begin(self._every(self._poll_seconds, self._watch), "upkeep-watch")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, name=name)

    def _forget(self, log: PartitionLog) -> None:
        for what in (_TIERING, _RETENTION, _COLLECTING):
            self._failures.forget(what % log.name)
            self._not_before.pop(what % log.name, None)

    def _loop_failed(self, failure: BaseException) -> None:
        _log.error("a loop of upkeep has ended", exc_info=failure)

    async def close(self) -> None:
        """Stop. What was being written is abandoned, as by a crash, and made up for later."""
        await self._tasks.close()

    # -- loops -------------------------------------------------------------------------------

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while self._node.ended is None:
            await runtime.sleep(seconds)
            if self._node.ended is None:
                await work()

    async def _next(self, due: runtime.DeadlineQueue[PartitionLog]) -> PartitionLog | None:
        """Wait for the log that is due next; None when the node has ended."""
        while self._node.ended is None:
            log = due.pop(runtime.monotonic())
            if log is not None:
                return log
            await self._wait(due.next_at())
        return None

    async def _wait(self, until: float | None = None) -> None:
        """Wait until work may be due: at a time, or when the node says so."""
        seconds = None if until is None else max(0.0, until - runtime.monotonic())
        pause = self._settings.interval_ms / 1000
        await self._node.wait_for_work(pause if seconds is None else min(seconds, pause))

    async def _tier(self) -> None:
        maintenance = self._node.maintenance
        while (log := await self._next(maintenance.tiering)) is not None:
            what = _TIERING % log.name
            try:
                if not await self._node.tier(log):
                    maintenance.put_off_tiering(log, self._settings.interval_ms / 1000)
                self._failures.succeeded(what)
            except Exception as error:
                maintenance.put_off_tiering(log, await self._failed(what, error))

    async def _retain(self) -> None:
        maintenance = self._node.maintenance
        again_seconds = self._settings.retention_check_ms / 1000
        while (log := await self._next(maintenance.retention)) is not None:
            what = _RETENTION % log.name
            try:
                if maintenance.retention_due(log):
                    await maintenance.retain(log)
                self._failures.succeeded(what)
            except Exception as error:
                pause = max(again_seconds, await self._failed(what, error))
                maintenance.put_off_retention(log, pause)

    async def _roll_up(self) -> None:
        what = "rolling up"
        while self._node.ended is None:
            if self._node.roll_up_due():
                await self._attempt(what, self._node.roll_up)
                # After a failure: when it may be tried again. Nothing else says when it is due.
                await self._wait(self._not_before.get(what))
            else:
                await self._wait()

    async def _attempt(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Try something unless it failed shortly before; whether it was done."""
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
        """Log a failure, unless it is known or we are over; for how many seconds to leave it alone.

        A successor moves and deletes what we have read from. To a process that was superseded and
        does not know it yet, that looks like damage.
        """
        if isinstance(error, DamagedError | NotFoundError):
            with contextlib.suppress(NeveError):
                await self._look()
        return 0.0 if self._node.ended is not None else self._failures.failed(what, error)

    # -- what is done every so often ---------------------------------------------------------

    async def _tend(self) -> None:
        node = self._node
        if node.rollups.unswept:
            await self._attempt("sweeping old streams", node.rollups.sweep)
        if node.maintenance.may_let_go():
            await self._attempt("letting go of old streams", node.let_go)
        wanted = [row for row in node.takeover.left() if not self._is_put_off(_LEADING % row)]
        if wanted:  # some may take long: what is left next time does not wait for them
            self._begin(self._lead_left(wanted), "upkeep-lead")

    async def _lead_left(self, wanted: Sequence[PartitionKey]) -> None:
        failures: Mapping[PartitionKey, Exception]
        try:
            failures = await self._node.takeover.lead_left(wanted)
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
            await self._attempt("purging deleted topics", self._node.purge)

    async def _collect(self) -> None:
        node = self._node
        for log in list(node.maintenance.collectable):
            what = _COLLECTING % log.name
            if not await self._attempt(what, functools.partial(node.maintenance.collect, log)):
                node.maintenance.note(log)
        await self._attempt("retiring streams", node.retire_streams)

    async def _watch(self) -> None:
        await self._attempt("watching the cluster log", self._look)

    async def _look(self) -> None:
        """Notice that this incarnation is over, which ends the node."""
        node = self._node
        await node.cluster.refresh()
        # A commit since the last look proves more than a look does.
        is_idle = node.writer.committed_end == self._committed_end
        self._committed_end = node.writer.committed_end
        if is_idle or node.led.lost:
            await node.writer.still_leading()
