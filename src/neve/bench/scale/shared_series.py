"""A cluster log whose states are shared by the simulated brokers of one process.

States are immutable, and every broker folds the same records to the same state. A hundred brokers
that each decode and fold for themselves would need the memory and processor time of a hundred. The
requests to the store are the same either way. What a broker spends when it works for itself is
measured apart: see `neve.bench.scale.processor`.
"""

from __future__ import annotations

from collections import OrderedDict

from neve.cluster.fold import ClusterRules
from neve.cluster.records import ClusterRecord
from neve.cluster.state import ClusterState
from neve.errors import NotFoundError
from neve.log.keys import cluster_log
from neve.log.series import Entry, Series, View
from neve.store.port import Store

FOLDS_MAX = 512
"""States that are remembered: more than any broker lags behind another."""


class SharedStates:
    """The states that brokers have read or folded so far."""

    def __init__(self) -> None:
        self.checkpoints: dict[int, View[ClusterState]] = {}
        # By number and author, since records are written once: the base, and what it folds to.
        self.folds: OrderedDict[tuple[int, bytes], tuple[ClusterState, ClusterState]] = (
            OrderedDict()
        )

    def add_fold(self, key: tuple[int, bytes], base: ClusterState, folded: ClusterState) -> None:
        self.folds[key] = base, folded
        while len(self.folds) > FOLDS_MAX:
            self.folds.popitem(last=False)


class SharedSeries(Series[ClusterState, ClusterRecord]):
    """The cluster log, read by one of the brokers that share states."""

    def __init__(self, store: Store, shared: SharedStates) -> None:
        super().__init__(store, cluster_log(), ClusterRules())
        self._shared = shared

    def _folded(
        self, view: View[ClusterState], entries: list[Entry[ClusterRecord]]
    ) -> View[ClusterState]:
        for entry in entries:
            key = entry.number, entry.author
            base, folded = self._shared.folds.get(key, (None, view.state))
            if base is not view.state:
                folded = super()._folded(view, [entry]).state
                self._shared.add_fold(key, view.state, folded)
            view = View(entry.number + 1, folded)
        return view

    async def _load_checkpoint(self, number: int) -> View[ClusterState] | None:
        known = self._shared.checkpoints.get(number)
        if known is None:
            found = await super()._load_checkpoint(number)
            if found is None:
                return None
            last = self._last_fold(number)
            # Equal to what the numbers below fold to, which other brokers may have done.
            known = found if last is None else View(number, last)
            self._shared.checkpoints = {number: known}
            return known
        try:
            await self.store.get_range(self.keys.checkpoint(number), 0, 1)
        except NotFoundError:
            return await super()._load_checkpoint(number)
        return known

    def _last_fold(self, number: int) -> ClusterState | None:
        for (each, _), (_, folded) in reversed(self._shared.folds.items()):
            if each == number - 1:
                return folded
        return None
