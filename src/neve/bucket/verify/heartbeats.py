"""Checks the heartbeats of live processes, and finds those of processes that have ended.

A damaged heartbeat is only noted: it counts as no sign of life, and its process overwrites it with
the next one.
"""

from __future__ import annotations

from neve.bucket.verify.context import Stray, VerifyContext
from neve.bucket.verify.findings import Finding, Remedy, Severity
from neve.bucket.verify.series import unknown_key
from neve.cluster.liveness.heartbeat import checked_heartbeat, is_over
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.keys import HEARTBEAT_PREFIX, heartbeat_of
from neve.store.port import ObjectInfo


class HeartbeatCheck:
    """Checks everything under the prefix of heartbeats."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context

    async def check(self) -> None:
        await self._context.watch(self)
        for row in await self._context.store.list(HEARTBEAT_PREFIX):
            incarnation = heartbeat_of(row.key)
            if incarnation is not None and incarnation in self._live():
                await self._read(row, incarnation)

    async def _read(self, row: ObjectInfo, incarnation: int) -> None:
        try:
            await checked_heartbeat(self._context.store, incarnation)
        except NotFoundError:
            return  # its process has ended meanwhile
        except (DamagedError, UnsupportedError) as error:
            what = f"the heartbeat of process {incarnation} cannot be read: "
            what += getattr(error, "reason", str(error))
            do = "nothing: its next heartbeat replaces it"
            finding = Finding(severity=Severity.NOTE, key=row.key, what=what, do=do)
            self._context.report.add(finding)
            return
        self._context.report.read("heartbeats", row.size)

    async def strays(self) -> list[Stray]:
        rows = await self._context.store.list(HEARTBEAT_PREFIX)
        await self._context.cluster.refresh()
        strays = [self._stray(row) for row in rows]
        return [stray for stray in strays if stray is not None]

    def _stray(self, row: ObjectInfo) -> Stray | None:
        incarnation = heartbeat_of(row.key)
        live = self._live()
        if incarnation is not None and incarnation in live:
            return None
        if not is_over(incarnation, live, self._context.cluster.view.position):
            return unknown_key(row, HEARTBEAT_PREFIX)
        return Stray(
            row,
            Finding(
                severity=Severity.LEFTOVER,
                key=row.key,
                what=f"process {incarnation} is over, and so are its heartbeats",
                do="harmless; --repair removes it",
                remedy=Remedy.REMOVE_HEARTBEAT,
            ),
        )

    def _live(self) -> set[int]:
        return {row.incarnation for row in self._context.cluster.state.brokers.values() if row.live}
