"""One process's view of the cluster log in a bucket: reading it, and proposing records.

A checkpoint is written after every `CHECKPOINT_NUMBERS` numbers, by the process that has won the
last of them: no other process has to look for it. Should that process die first, the next one is
due after as many numbers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NoReturn

from neve import runtime
from neve.cluster.fold import ClusterRules
from neve.cluster.records import FEATURE_LEVEL, Change, ClusterRecord, level_of
from neve.cluster.state import ClusterState, is_live
from neve.errors import (
    ConflictError,
    FencedError,
    NeveError,
    NotFoundError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.keys import cluster_log
from neve.log.series import Series, View
from neve.log.wal.stores import places_of
from neve.serving.logs import event
from neve.settings import ClusterSettings
from neve.store.port import Store

_log = logging.getLogger(__name__)

CHECKPOINT_NUMBERS = 256
WHOLE_READ_SECONDS = 300.0
"""How long `look` relies on two objects. Then it lists the checkpoints once."""


class NoClusterError(NeveError):
    """There is no Neve cluster in this bucket."""


class ReplacedError(FencedError):
    """Another process of the same node was started."""


class NewerClusterError(UnsupportedError):
    """The cluster log has what this version does not know. Its process must stop."""


class ClusterLogView:
    """One process's view of the cluster log.

    `on_change` is called with the state before and the new one, `on_newer` before a
    NewerClusterError is raised.
    """

    def __init__(
        self,
        store: Store,
        limits: ClusterSettings | None = None,
        *,
        series: Series[ClusterState, ClusterRecord] | None = None,
    ) -> None:
        self._store = store
        self._places = places_of(store)
        self._limits = limits or ClusterSettings()
        self._series = series or Series(store, cluster_log(), ClusterRules())
        self._unwritten: View[ClusterState] | None = None  # a checkpoint that we have to write
        self.incarnation: int | None = None  # of the process that registered with this view
        self.view: View[ClusterState] = View(0, ClusterState())
        self.read_at = float("-inf")  # when it was last read to its end, on our own clock
        self.on_change: Callable[[ClusterState, ClusterState], None] = lambda *_: None
        self.on_won: Callable[[], None] = lambda: None  # called after each number that we win
        self.on_newer: Callable[[NewerClusterError], None] = lambda _: None
        self.is_informed: Callable[[], bool] = lambda: False  # by the positions of others
        self._known_end = 0  # the greatest position that others have sent
        self._behind = asyncio.Event()
        self._greatest_seen = 0  # how far any process is known to have read
        # Held by a change of configs that is derived from the state: one after the other.
        self.changing_configs = asyncio.Lock()

    @property
    def state(self) -> ClusterState:
        return self.view.state

    def seen(self, position: int) -> None:
        """Note that another process has read the log up to `position`."""
        self._greatest_seen = max(self._greatest_seen, position)
        if position > self.view.position:
            self._known_end = max(self._known_end, position)
            self._behind.set()

    @property
    def numbers_behind(self) -> int:
        """How many numbers other processes are known to have read and this one has not."""
        return max(0, self._greatest_seen - self.view.position)

    async def wait_until_behind(self, seconds: float) -> bool:
        """Wait until the log is known to have more than our view, but no longer than `seconds`.

        Returns True if it is.
        """
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._behind.wait()
        self._behind.clear()
        return self._known_end > self.view.position

    async def refresh(self) -> ClusterState:
        """Read what is new. Raises NewerClusterError if this version does not know all of it."""
        began = runtime.monotonic()
        progress, unreadable = await self._series.advance_readable(self.view)
        self._reached(progress.view)
        if isinstance(unreadable, UnsupportedError):
            self._raise_newer(f"{unreadable}. {_levels(self.view.state)}")
        if unreadable is not None:
            raise unreadable
        self.read_at = max(self.read_at, began)
        return self.view.state

    async def look(self) -> None:
        """Read what is new, with two small reads and no listing if that is nothing.

        If the next number is missing, it was not written yet, or a checkpoint has hidden it: the
        one that is due next, or a later one. A later one is noticed within WHOLE_READ_SECONDS. So
        this does not prove that the view is current (`read_at`).
        """
        is_old = runtime.monotonic() - self.read_at >= WHOLE_READ_SECONDS
        if is_old or self._known_end > self.view.position or await self._has_more():
            await self.refresh()

    async def _has_more(self) -> bool:
        position, keys = self.view.position, self._series.keys
        due = position - position % CHECKPOINT_NUMBERS + CHECKPOINT_NUMBERS
        for key in (keys.number(position), keys.checkpoint(due)):
            try:
                await self._store.get_range(key, 0, 1)
            except NotFoundError:
                continue
            return True
        return False

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
        self._check_feature_level(self.view.state)
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

        proposed: list[tuple[View[ClusterState], ClusterRecord]] = []

        def record(view: View[ClusterState]) -> ClusterRecord | None:
            # Check before anything is written: this version cannot interpret a newer feature level,
            # and a process that is not live must change nothing.
            self._check_feature_level(view.state)
            if self.incarnation is not None and not is_live(view.state.brokers, self.incarnation):
                self._reached(view)
                raise FencedError(
                    f"incarnation {self.incarnation} is over: another process has taken its place"
                )
            change = derive(view)
            if change is None:
                return None
            _check_level_of(change, view.state)
            proposed[:] = [(view, ClusterRecord(change))]
            return proposed[0][1]

        try:
            outcome = await self._series.propose(self.view, record)
        except NewerClusterError:
            raise
        except UnsupportedError:
            await self.refresh()  # raises what the process has to stop for
            raise
        self._reached(outcome.view)
        if outcome.number is not None:
            self.on_won()
            self._note_due_checkpoint(outcome.number, *proposed[0])
        # The change is decided even if the checkpoint fails; the next proposal retries it.
        try:
            await self._write_due_checkpoint()
        except (UnavailableError, ConflictError):
            pass
        except StoreError as error:  # an operator has to help
            event(_log, logging.WARNING, "cluster log checkpoint failed", error=str(error))
        return outcome.number

    def _note_due_checkpoint(
        self, number: int, base: View[ClusterState], record: ClusterRecord
    ) -> None:
        """Note that a checkpoint is due after this number, which we have won."""
        if (number + 1) % CHECKPOINT_NUMBERS == 0 and number == base.position:
            state = self._series.rules.fold(base.state, number, record)
            self._unwritten = View(number + 1, state)

    async def _write_due_checkpoint(self) -> None:
        due = self._unwritten
        if due is not None:
            await self._series.checkpoint(due)
            await self._series.trim()
            if self._unwritten is due:
                self._unwritten = None

    def _check_feature_level(self, state: ClusterState) -> None:
        if state.feature_level > FEATURE_LEVEL:
            self._raise_newer(_levels(state))

    def _raise_newer(self, message: str) -> NoReturn:
        error = NewerClusterError(message)
        self.on_newer(error)
        raise error


def _levels(state: ClusterState) -> str:
    return (
        f"The cluster has feature level {state.feature_level} and this version knows levels up to "
        f"{FEATURE_LEVEL}: upgrade Neve"
    )


def _check_level_of(change: Change, state: ClusterState) -> None:
    level = level_of(change)
    # The first record sets the level.
    if level > max(state.feature_level, 1):
        raise UnsupportedError(
            f"this needs feature level {level}, and the cluster has {state.feature_level}: upgrade "
            "or stop the brokers of older versions"
        )
