"""The cluster log: every number from its greatest checkpoint on."""

from __future__ import annotations

from neve.bucket.verify.context import Stray, VerifyContext, confirmed, unreadable
from neve.bucket.verify.findings import Finding, Remedy
from neve.bucket.verify.series import (
    below_checkpoint,
    missing_number,
    number_or_checkpoint,
    unknown_key,
)
from neve.errors import DamagedError, UnsupportedError
from neve.log.keys import CLUSTER_LOG_PREFIX, cluster_log
from neve.log.series import greatest_checkpoint


class ClusterCheck:
    """The cluster log of one bucket."""

    def __init__(self, look: VerifyContext) -> None:
        self._look = look
        self._keys = cluster_log()

    async def check(self) -> bool:
        """Read it to its end. Returns False if that fails: nothing else can be checked then."""
        look = self._look
        look.report.begin("cluster log")
        try:
            await look.cluster.must_exist()
        except (DamagedError, UnsupportedError) as error:
            look.report.add(unreadable(error, CLUSTER_LOG_PREFIX))
            return False
        look.report.counts["cluster_numbers"] = look.cluster.view.position
        for finding in await confirmed(self._missing):
            look.report.add(finding)
        await look.watch(self)
        return True

    async def _missing(self) -> list[Finding]:
        rows = await self._look.store.list(CLUSTER_LOG_PREFIX)
        await self._look.cluster.refresh()
        return missing_number(self._keys, rows, self._look.cluster.view.position)

    async def strays(self) -> list[Stray]:
        rows = await self._look.store.list(CLUSTER_LOG_PREFIX)
        greatest = await greatest_checkpoint(self._look.store, self._keys) or 0
        unknown = [row for row in rows if number_or_checkpoint(self._keys, row.key) is None]
        return [
            *below_checkpoint(self._keys, rows, greatest, Remedy.TRIM_CLUSTER_LOG),
            *(unknown_key(row, CLUSTER_LOG_PREFIX) for row in unknown),
        ]
