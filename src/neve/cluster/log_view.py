"""One process's view of the cluster log in a bucket: reading it, and proposing records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from neve import runtime
from neve.cluster.fold import ClusterRules
from neve.cluster.records import FEATURE_LEVEL, Change, ClusterRecord, level_of
from neve.cluster.state import ClusterState, is_live
from neve.errors import (
    ConflictError,
    FencedError,
    NeveError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.keys import cluster_log
from neve.log.series import Series, View, greatest_checkpoint
from neve.log.wal.stores import places_of
from neve.settings import ClusterSettings
from neve.store.port import Store

CHECKPOINT_NUMBERS = 256


class NoClusterError(NeveError):
    """There is no Neve cluster in this bucket."""


class ReplacedError(FencedError):
    """Another process of the same node was started."""


class ClusterLogView:
    """One process's view of the cluster log.

    `on_change` is called with the state before and the new one.
    """

    def __init__(self, store: Store, limits: ClusterSettings | None = None) -> None:
        self._store = store
        self._places = places_of(store)
        self._limits = limits or ClusterSettings()
        self._series: Series[ClusterState, ClusterRecord] = Series(
            store, cluster_log(), ClusterRules()
        )
        self._checkpointed = 0
        self.incarnation: int | None = None  # of the process that registered with this view
        self.view: View[ClusterState] = View(0, ClusterState())
        self.read_at = float("-inf")  # when it was last read to its end, on our own clock
        self.on_change: Callable[[ClusterState, ClusterState], None] = lambda *_: None
        self.on_won: Callable[[], None] = lambda: None  # called after each number that we win
        self._behind = asyncio.Event()
        # Held by a change of configs that is derived from the state: one after the other.
        self.changing_configs = asyncio.Lock()

    @property
    def state(self) -> ClusterState:
        return self.view.state

    def seen(self, position: int) -> None:
        """Note that another process has read the log up to `position`."""
        if position > self.view.position:
            self._behind.set()

    async def wait_until_behind(self, seconds: float) -> None:
        """Wait until the log is known to have more than our view, but no longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._behind.wait()
        self._behind.clear()

    async def refresh(self) -> ClusterState:
        """Read what is new."""
        began = runtime.monotonic()
        self._reached((await self._series.advance(self.view)).view)
        self.read_at = max(self.read_at, began)
        return self.view.state

    async def must_exist(self) -> ClusterState:
        """Read what is new. Raises NoClusterError if the bucket holds no cluster."""
        state = await self.refresh()
        if not state.cluster_id:
            raise NoClusterError(
                "this bucket holds no Neve cluster (nothing under meta/log/): check the URL, or "
                "pass --layout kafscale for a KafScale bucket"
            )
        return state

    def _reached(self, view: View[ClusterState]) -> None:
        before = self.view.state
        moved = view.position > self.view.position
        if moved:
            self._learn_places(view)  # if it raises, so does each later read
        if view.position >= self.view.position:
            self.view = view
        _check_feature_level(self.view.state)
        if moved:
            self.on_change(before, view.state)

    def _learn_places(self, view: View[ClusterState]) -> None:
        """Let the store know where streams lie, before anything reads one."""
        refs = view.state.wal_stores()
        if self._places is not None:
            self._places.learn(view.state.cluster_id, view.position, refs)
        elif refs:
            names = ", ".join(sorted({ref.name for ref in refs.values()}))
            raise UnsupportedError(
                f"streams of this cluster lie in other stores ({names}), and the bucket was opened "
                "without them"
            )

    async def propose(self, derive: Callable[[ClusterState], Change | None]) -> int | None:
        """Propose a change until it is decided. Returns its number; None if it was not needed."""
        return await self._propose(lambda view: derive(view.state))

    async def _propose(self, derive: Callable[[View[ClusterState]], Change | None]) -> int | None:
        """As `propose`, for a change that depends on its own number: the view's position."""

        def record(view: View[ClusterState]) -> ClusterRecord | None:
            # Check before anything is written: this version cannot interpret a newer feature level,
            # and a process that is not live must change nothing.
            _check_feature_level(view.state)
            if self.incarnation is not None and not is_live(view.state.brokers, self.incarnation):
                self._reached(view)
                raise FencedError(
                    f"incarnation {self.incarnation} is over: another process has taken its place"
                )
            change = derive(view)
            if change is None:
                return None
            _check_level_of(change, view.state)
            return ClusterRecord(change)

        outcome = await self._series.propose(self.view, record)
        self._reached(outcome.view)
        if outcome.number is not None:
            self.on_won()
        # The change is decided even if the checkpoint fails; the next proposal retries it.
        with contextlib.suppress(UnavailableError, ConflictError):
            await self._checkpoint_if_due()
        return outcome.number

    async def _checkpoint_if_due(self) -> None:
        if self.view.position - self._checkpointed < CHECKPOINT_NUMBERS:
            return
        greatest = await greatest_checkpoint(self._store, self._series.keys)
        self._checkpointed = max(self._checkpointed, greatest or 0)
        if self.view.position - self._checkpointed >= CHECKPOINT_NUMBERS:
            await self._series.checkpoint(self.view)
            self._checkpointed = self.view.position
            await self._series.trim()


def _check_feature_level(state: ClusterState) -> None:
    if state.feature_level > FEATURE_LEVEL:
        raise UnsupportedError(
            f"the cluster has feature level {state.feature_level} and this version knows "
            f"{FEATURE_LEVEL}: upgrade"
        )


def _check_level_of(change: Change, state: ClusterState) -> None:
    level = level_of(change)
    # The first record sets the level.
    if level > max(state.feature_level, 1):
        raise UnsupportedError(
            f"this needs feature level {level}, and the cluster has {state.feature_level}: upgrade "
            "or stop the brokers of older versions"
        )
