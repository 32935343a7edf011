"""A broker as a member of its cluster: it watches others, is watched, and pulls its load.

`neve.cluster.liveness` decides what to ping, when to look at a heartbeat and which broker is dead.
The loops here carry that out over the network and the store. A verdict becomes an `expire` record,
which names live leaders for the partitions of the dead process. A wrong verdict costs a failover,
never data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from neve import runtime
from neve.cluster.liveness.beats import Beats
from neve.cluster.liveness.detector import Reason, Step, StepKind, Verdict
from neve.cluster.liveness.heartbeat import read_heartbeat, write_heartbeat
from neve.cluster.liveness.suspicion import Observer
from neve.cluster.liveness.timing import Timing
from neve.cluster.liveness.watchers import watched_by, watchers_of
from neve.cluster.node import Node
from neve.cluster.peer_link import PeerError, PeerLink, PeerRefusedError
from neve.cluster.peer_positions import PeerPositions
from neve.cluster.rebalancer import PARTITIONS_PER_REQUEST, Rebalancer
from neve.cluster.state import BrokerRegistration, ClusterState, PartitionKey, is_live
from neve.errors import FencedError, NeveError
from neve.log.wal.seal import Sealer
from neve.serving.logs import event
from neve.settings import ClusterSettings

_log = logging.getLogger(__name__)

REBALANCE_CHECK_SECONDS = 1.0


class Membership:
    """The membership of one broker. Call `start` once it listens, and `close` before the node's."""

    def __init__(self, node: Node, link: PeerLink, settings: ClusterSettings) -> None:
        self._node = node
        self._link = link
        self._watchers = settings.watchers
        self._timing = Timing.of(settings)
        self._observer = Observer(self._timing)
        self._beats = Beats(self._timing)
        self._positions = PeerPositions(self._timing.recent_seconds)
        self.rebalancer = Rebalancer(node, link, settings)
        self.verdicts: dict[Reason, int] = dict.fromkeys(Reason, 0)  # found dead here, so far
        self.expired = 0  # brokers that this one has declared dead, so far
        self._tasks = runtime.Tasks(on_failure=_failed)
        self._followed = node.cluster.state
        self._follows = False
        self._own_watchers: list[int] = []  # in the state that is followed
        self._expiring: set[int] = set()  # only for look-ups
        self._steps_due = asyncio.Event()
        self._beat_due = asyncio.Event()

    def start(self) -> None:
        self._node.cluster.on_won = self._announce
        self._node.cluster.is_informed = self._is_informed
        self._node.purging.ask = self._ask_dropped
        self._tasks.start(self._observe(), name="membership-observe")
        self._tasks.start(self._beat(), name="membership-beat")
        self._tasks.start(self._rebalance(), name="membership-rebalance")

    async def close(self) -> None:
        self._node.cluster.on_won = lambda: None
        self._node.cluster.is_informed = lambda: False
        await self._tasks.close()

    # -- messages of other brokers -------------------------------------------------------------

    @property
    def position(self) -> int:
        """The cluster-log number up to which this broker has read."""
        return self._node.cluster.view.position

    @property
    def dropped(self) -> int:
        """The cluster-log number below which this broker has dropped every deleted topic."""
        return self._node.purging.dropped_below()

    def pinged(self, sender: int, position: int, *, watches: bool, hears: bool) -> None:
        """Take note of a ping: another broker is alive, and has read the cluster log so far.

        A sender that `watches` this broker `hears` the answers, or did not get the last one.
        """
        if watches:
            self._beats.pinged(sender, runtime.monotonic(), hears=hears, position=position)
            self._beat_due.set()
        self._positions.heard(sender, runtime.monotonic())
        self._node.cluster.seen(position)

    def _is_informed(self) -> bool:
        """Whether all brokers that this one exchanges pings with were heard from lately."""
        return self._positions.are_recent(runtime.monotonic())

    def notified(self, sender: int, end: int) -> int:
        """Take note of how far another broker has committed its stream.

        Returns the number up to which this broker has read it, or -1 if it does not follow it.
        """
        return self._node.replication.heard(sender, end)

    async def refuses(self, incarnation: int) -> bool:
        """Whether a broker refuses connections from here."""
        suspect = self._node.cluster.state.brokers.get(incarnation)
        if suspect is None or not suspect.port:
            return False
        try:
            await self._link.ping(suspect, self._timing.interval_seconds)
        except PeerError as error:
            return isinstance(error, PeerRefusedError)
        return False

    async def release(self, wanted: Mapping[PartitionKey, int]) -> int:
        """Release partitions, each to a successor. Returns how many were released.

        Goes on if the caller gives up: a stopped partition must be decided.
        """
        task = self._tasks.start(self._node.releases.release(wanted))
        return len(await asyncio.shield(task))

    async def pull(self, wanted: Collection[PartitionKey], position: int) -> int:
        """Take over those of these partitions that this broker should lead, at once.

        The sender knows that from the cluster log up to `position`. Returns how many.
        """
        cluster = self._node.cluster
        if position > cluster.view.position:
            await cluster.refresh()
        task = self._tasks.start(self.rebalancer.pull(wanted))
        return await asyncio.shield(task)

    # -- messages to other brokers ---------------------------------------------------------------

    async def let_pull(
        self, leader: int, wanted: Sequence[PartitionKey], seconds: float
    ) -> PeerError | None:
        """Let the process that should lead these partitions take them over now.

        Returns the error if it does not answer.
        """
        target = self._node.cluster.state.brokers[leader]
        try:
            for at in range(0, len(wanted), PARTITIONS_PER_REQUEST):
                asked = wanted[at : at + PARTITIONS_PER_REQUEST]
                if leader == self._node.incarnation:
                    await self.pull(asked, self.position)
                else:
                    await self._link.pull(target, asked, seconds)
        except PeerError as error:
            return error
        return None

    async def _ask_dropped(self, target: BrokerRegistration) -> int | None:
        """Ask a broker up to which number it has dropped deleted topics; None without an answer."""
        try:
            answer = await self._link.ping(target, self._timing.interval_seconds)
        except PeerError:
            return None
        return answer.dropped

    # -- loops -----------------------------------------------------------------------------------

    async def _observe(self) -> None:
        while self._node.ended is None:
            self._follow()
            now = runtime.monotonic()
            for step in self._observer.due(now):
                self._tasks.start(self._take(step))
            for verdict in self._observer.dead(now):
                if verdict.incarnation not in self._expiring:
                    self._expiring.add(verdict.incarnation)
                    self._tasks.start(self._expire(verdict))
            await _wait(self._steps_due, self._observer.next_at(), self._timing.interval_seconds)

    async def _beat(self) -> None:
        while self._node.ended is None:
            count = self._beats.due(runtime.monotonic())
            if count is not None:
                # The next one is due soon, so a failure is not retried.
                with contextlib.suppress(NeveError, TimeoutError):
                    async with runtime.deadline(self._timing.session_seconds):
                        await write_heartbeat(self._node.store, self._node.incarnation, count)
            await _wait(self._beat_due, self._beats.next_at(), self._timing.interval_seconds)

    async def _rebalance(self) -> None:
        moved = 0
        while self._node.ended is None:
            if not moved:  # otherwise the next owners are asked at once
                await runtime.sleep(REBALANCE_CHECK_SECONDS)
            moved = 0
            try:
                moved = await self.rebalancer.run_if_due()
            except NeveError as error:
                event(_log, logging.WARNING, "rebalancing failed", error=str(error))

    def _follow(self) -> None:
        """Watch, and be watched by, what the newest state of the cluster says."""
        cluster = self._node.cluster
        state = cluster.state
        own = state.brokers.get(self._node.incarnation)
        if (state is self._followed and self._follows) or own is None:
            return
        _report_members(self._followed, state)
        same = self._follows and state.brokers is self._followed.brokers
        self._follows, self._followed = True, state
        if not same:  # the fold keeps the brokers where it does not change them
            self._follow_brokers(own, state)
        self._beats.watch(self._own_watchers, cluster.view.position, runtime.monotonic())
        self._beat_due.set()

    def _follow_brokers(self, own: BrokerRegistration, state: ClusterState) -> None:
        brokers = state.brokers.values()
        watched = watched_by(own, brokers, self._watchers)
        self._observer.watch(watched, runtime.monotonic())
        self._own_watchers = [row.incarnation for row in watchers_of(own, brokers, self._watchers)]
        live = (row.incarnation for row in watched if row.port)
        self._positions.expect([*self._own_watchers, *live])
        self._link.forget({row.incarnation for row in brokers if row.live})

    def _announce(self) -> None:
        """Let all other brokers know that the cluster log has grown."""
        others = [
            row
            for row in self._node.cluster.state.brokers.values()
            if row.live and row.port and row.incarnation != self._node.incarnation
        ]
        self._link.announce(others)
        self._steps_due.set()

    # -- steps of the observer ---------------------------------------------------------------------

    async def _take(self, step: Step) -> None:
        """Take a step and report its outcome, whatever it is."""
        try:
            target = self._node.cluster.state.brokers.get(step.incarnation)
            if step.kind is StepKind.LOOK:
                await self._look(step)
            elif target is None:
                self._give_up(step)
            elif step.kind is StepKind.PING:
                await self._ping(step, target)
            else:
                await self._question(step, target)
        except BaseException:
            self._give_up(step)
            raise
        finally:
            self._steps_due.set()

    def _give_up(self, step: Step) -> None:
        if step.kind is StepKind.PING:
            self._observer.timed_out(step, runtime.monotonic())
        elif step.kind is StepKind.LOOK:
            self._observer.look_failed(step)
        else:
            self._observer.denied(step)

    async def _ping(self, step: Step, target: BrokerRegistration) -> None:
        try:
            answer = await self._link.ping(
                target, self._timing.interval_seconds, watches=True, hears=step.hears
            )
        except PeerRefusedError:
            self._observer.refused(step, runtime.monotonic())
        except PeerError:
            self._observer.timed_out(step, runtime.monotonic())
        else:
            self._observer.answered(step)
            self._positions.heard(target.incarnation, runtime.monotonic())
            self._node.cluster.seen(answer.position)
            self._node.purging.heard(target.incarnation, answer.dropped)

    async def _look(self, step: Step) -> None:
        try:
            async with runtime.deadline(self._timing.session_seconds):
                count = await read_heartbeat(self._node.store, step.incarnation)
        except (NeveError, TimeoutError):
            self._observer.look_failed(step)
        else:
            self._observer.looked(step, count, runtime.monotonic())

    async def _question(self, step: Step, suspect: BrokerRegistration) -> None:
        """Ask the other watchers of a broker whether it refuses their connections too."""
        brokers = self._node.cluster.state.brokers.values()
        others = [
            row
            for row in watchers_of(suspect, brokers, self._watchers)
            if row.incarnation != self._node.incarnation
        ]
        answers = await runtime.gather(*(self._asked(each, suspect) for each in others))
        if any(answers):
            self._observer.confirmed(step, runtime.monotonic())
        else:
            self._observer.denied(step)

    async def _asked(self, other: BrokerRegistration, suspect: BrokerRegistration) -> bool:
        try:
            return await self._link.probe(other, suspect, 2 * self._timing.interval_seconds)
        except PeerError:
            return False

    async def _expire(self, verdict: Verdict) -> None:
        """Declare a process dead, and seal its stream whether or not it led a partition."""
        node, dead = self._node, verdict.incarnation
        broker = node.cluster.state.brokers.get(dead)
        try:
            if broker is None or not is_live(node.cluster.state.brokers, dead):
                return
            about = {"node": broker.node_id, "incarnation": dead, "reason": str(verdict.reason)}
            self.verdicts[verdict.reason] += 1
            event(_log, logging.WARNING, "broker seems dead", **about)
            if await node.cluster.expire(dead, partial(self._stands, dead)):
                self.expired += 1
                event(_log, logging.WARNING, "broker declared dead", **about)
                await Sealer(node.store, dead, window=broker.inflight).seal()
        except NeveError as error:
            about = {"incarnation": dead, "error": str(error)}
            event(_log, logging.WARNING, "broker not declared dead", **about)
        finally:
            self._expiring.discard(dead)

    def _stands(self, dead: int, state: ClusterState) -> bool:
        """Whether a process is still believed dead, and is this broker's to watch in that state."""
        own = state.brokers.get(self._node.incarnation)
        if own is None:
            return False
        watched = watched_by(own, state.brokers.values(), self._watchers)
        found = {each.incarnation for each in self._observer.dead(runtime.monotonic())}
        return dead in found and any(row.incarnation == dead for row in watched)


def _report_members(before: ClusterState, state: ClusterState) -> None:
    """Log which brokers have joined and which have ended."""
    if before is state:
        return
    for key, row in state.brokers.items():
        if row.live and key not in before.brokers:
            about = {"node": row.node_id, "incarnation": key, "rack": row.rack}
            event(_log, logging.INFO, "broker joined", **about)
    for key, row in before.brokers.items():
        if row.live and not is_live(state.brokers, key):
            event(_log, logging.INFO, "broker ended", node=row.node_id, incarnation=key)


async def _wait(due: asyncio.Event, at: float | None, seconds_max: float) -> None:
    """Wait until something is due: until a time, or until it is notified."""
    left = seconds_max if at is None else min(seconds_max, max(0.0, at - runtime.monotonic()))
    with contextlib.suppress(TimeoutError):
        async with runtime.deadline(left):
            await due.wait()
    due.clear()


def _failed(failure: BaseException) -> None:
    if isinstance(failure, FencedError):
        return  # the node ends and says why, and a caller that waits gets the error too
    _log.error("a task of the membership failed", exc_info=failure)
