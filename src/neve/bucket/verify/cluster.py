"""Checks the cluster log: every number from its greatest checkpoint on."""

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
    """Checks the cluster log of one bucket."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._keys = cluster_log()

    async def check(self) -> bool:
        """Read the cluster log to its end. Returns False if that fails.

        Nothing else in the bucket can be checked then.
        """
        context = self._context
        context.report.begin("cluster log")
        try:
            await context.cluster.must_exist()
        except (DamagedError, UnsupportedError) as error:
            context.report.add(unreadable(error, CLUSTER_LOG_PREFIX))
            return False
        context.report.counts["cluster_numbers"] = context.cluster.view.position
        for finding in await confirmed(self._missing):
            context.report.add(finding)
        await context.watch(self)
        return True

    async def _missing(self) -> list[Finding]:
        rows = await self._context.store.list(CLUSTER_LOG_PREFIX)
        await self._context.cluster.refresh()
        return missing_number(self._keys, rows, self._context.cluster.view.position)

    async def strays(self) -> list[Stray]:
        rows = await self._context.store.list(CLUSTER_LOG_PREFIX)
        greatest = await greatest_checkpoint(self._context.store, self._keys) or 0
        unknown = [row for row in rows if number_or_checkpoint(self._keys, row.key) is None]
        return [
            *below_checkpoint(self._keys, rows, greatest, Remedy.TRIM_CLUSTER_LOG),
            *(unknown_key(row, CLUSTER_LOG_PREFIX) for row in unknown),
        ]
