"""Brokers that watch each other, in virtual time, with faults of network, store and processes.

It drives `neve.cluster.liveness` as a broker does: one loop for the steps of its observer, one for
its heartbeats, one for the cluster log.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from neve import runtime
from neve.cluster.liveness.beats import Beats
from neve.cluster.liveness.detector import Reason, Step, StepKind
from neve.cluster.liveness.heartbeat import read_heartbeat, write_heartbeat
from neve.cluster.liveness.suspicion import Observer
from neve.cluster.liveness.timing import Timing
from neve.cluster.liveness.watchers import watched_by, watchers_of
from neve.cluster.state import BrokerRegistration
from neve.errors import NeveError, UnavailableError
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")
TIMING = Timing(interval_seconds=1.0, session_seconds=6.0, grace_seconds=8.0)
HOP_SECONDS = 0.001
RETRY_SECONDS = 0.5


def broker(incarnation: int, *, live: bool = True, port: int = 9092) -> BrokerRegistration:
    return BrokerRegistration(
        node_id=incarnation,
        incarnation=incarnation,
        session="",
        inflight=1,
        at_ms=0,
        host="h",
        port=port,
        live=live,
    )


class End(enum.Enum):
    """How a process ends."""

    PROCESS = "connections are refused"
    MACHINE = "connections time out"


class Cut(enum.Enum):
    """What does not arrive between two processes."""

    EVERYTHING = "everything"
    ANSWERS = "answers"


class Pause(NamedTuple):
    """A process that does not run for a while, and does not notice."""

    incarnation: int
    start: float
    end: float


class Partition(NamedTuple):
    """Pings of one process that do not reach another, or whose answers do not return."""

    source: int
    target: int
    start: float
    end: float
    what: Cut = Cut.EVERYTHING


class Outage(NamedTuple):
    """A store that fails for all, or that answers only when the outage is over."""

    start: float
    end: float
    hangs: bool = False


class Found(NamedTuple):
    """An observer that believes a process dead."""

    at: float
    observer: int
    dead: int
    reason: Reason


@dataclass
class World:
    """A cluster. Set the faults, start the processes, run for a time, and read `found`."""

    timing: Timing = TIMING
    watchers: int = 3
    look_seconds: float = 0.01
    pauses: Sequence[Pause] = ()
    partitions: Sequence[Partition] = ()
    outages: Sequence[Outage] = ()
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    position: int = 0
    processes: dict[int, Process] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    calls: list[tuple[float, str, int]] = field(default_factory=list)
    """Requests to the store: when, which operation, by which process."""

    async def start(self, *incarnations: int, port: int = 9092) -> None:
        """Register processes and run them. They read the log at once, the others when they poll."""
        for incarnation in incarnations:
            self.brokers[incarnation] = broker(incarnation, port=port)
            self.position += 1
        for incarnation in incarnations:
            process = self.processes[incarnation] = Process(self, incarnation)
            process.start()

    async def end(self, incarnation: int, how: End) -> None:
        process = self.processes[incarnation]
        process.ended = how
        await process.tasks.close()

    async def leave(self, incarnation: int) -> None:
        """End a process, and its registration."""
        await self.end(incarnation, End.PROCESS)
        self.brokers[incarnation] = broker(incarnation, live=False)
        self.position += 1

    async def close(self) -> None:
        for process in self.processes.values():
            await process.tasks.close()

    def outage(self, now: float) -> Outage | None:
        return next((row for row in self.outages if row.start <= now < row.end), None)

    def cut(self, source: int, target: int, now: float) -> Cut | None:
        rows = [row for row in self.partitions if (row.source, row.target) == (source, target)]
        return next((row.what for row in rows if row.start <= now < row.end), None)

    def requests(self, operation: str, since: float = 0.0) -> int:
        return sum(name == operation and at >= since for at, name, _ in self.calls)

    def found_dead(self, incarnation: int) -> dict[int, Found]:
        """The first verdict of each observer about a process."""
        first: dict[int, Found] = {}
        for row in self.found:
            if row.dead == incarnation:
                first.setdefault(row.observer, row)
        return first


class WorldStore(Wrapper):
    """The store as one process sees it: with latency, and with the outages of the world."""

    def __init__(self, world: World, incarnation: int) -> None:
        super().__init__(MemoryStore(world.bucket))
        self._world = world
        self._incarnation = incarnation

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        world = self._world
        world.calls.append((runtime.monotonic(), call.operation, self._incarnation))
        await runtime.sleep(world.look_seconds / 2)
        while (outage := world.outage(runtime.monotonic())) is not None:
            if not outage.hangs:
                raise UnavailableError(call.key, "the store is down")
            await runtime.sleep(outage.end - runtime.monotonic())
        result = await work()
        await runtime.sleep(world.look_seconds / 2)
        return result


class Process:
    """One process: it watches others and is watched."""

    def __init__(self, world: World, incarnation: int) -> None:
        self.world = world
        self.incarnation = incarnation
        self.store = WorldStore(world, incarnation)
        self.observer = Observer(world.timing)
        self.beats = Beats(world.timing)
        self.brokers: dict[int, BrokerRegistration] = {}
        self.position = 0
        self.ended: End | None = None
        self.answered: dict[int, float] = {}
        """When each process last answered a ping of this one."""
        self.tasks = runtime.Tasks(on_failure=self._failed)
        self._reported = asyncio.Event()
        self._pinged = asyncio.Event()

    def _failed(self, failure: BaseException) -> None:
        raise failure

    def start(self) -> None:
        self._read_log()
        self.tasks.start(self._poll(), name=f"poll-{self.incarnation}")
        self.tasks.start(self._observe(), name=f"observe-{self.incarnation}")
        self.tasks.start(self._beat(), name=f"beat-{self.incarnation}")

    async def running(self) -> None:
        """Wait while the process is paused."""
        while (end := self._paused_until()) is not None:
            await runtime.sleep(end - runtime.monotonic())

    def _paused_until(self) -> float | None:
        now = runtime.monotonic()
        rows = [row for row in self.world.pauses if row.incarnation == self.incarnation]
        return next((row.end for row in rows if row.start <= now < row.end), None)

    # -- the cluster log -----------------------------------------------------------------------

    async def _poll(self) -> None:
        await runtime.sleep(runtime.chance().random() * self.world.timing.grace_seconds)
        while True:
            await self.running()
            if self.world.outage(runtime.monotonic()) is not None:
                await runtime.sleep(RETRY_SECONDS)
                continue
            self._read_log()
            await runtime.sleep(self.world.timing.grace_seconds)

    def _read_log(self) -> None:
        if self.position == self.world.position:
            return
        self.brokers, self.position = dict(self.world.brokers), self.world.position
        me, every, now = self.brokers[self.incarnation], self.brokers.values(), runtime.monotonic()
        self.observer.watch(watched_by(me, every, self.world.watchers), now)
        watchers = watchers_of(me, every, self.world.watchers)
        self.beats.watch([row.incarnation for row in watchers], self.position, now)
        self._reported.set()
        self._pinged.set()

    # -- observing -----------------------------------------------------------------------------

    async def _observe(self) -> None:
        while True:
            await self.running()
            now = runtime.monotonic()
            for step in self.observer.due(now):
                self.tasks.start(self._take(step), name=f"step-{self.incarnation}")
            await self._wait(self._reported, self.observer.next_at())

    async def _take(self, step: Step) -> None:
        if step.kind is StepKind.PING:
            await self._ping(step)
        elif step.kind is StepKind.LOOK:
            await self._look(step)
        else:
            await self._ask(step)
        now = runtime.monotonic()
        for verdict in self.observer.dead(now):
            row = Found(now, self.incarnation, verdict.incarnation, verdict.reason)
            self.world.found.append(row)
        self._reported.set()

    async def _ping(self, step: Step) -> None:
        try:
            async with runtime.deadline(self.world.timing.interval_seconds):
                refused = await self._is_refused(step.incarnation)
                if not refused:
                    await self._send_ping(step.incarnation, step.hears)
        except TimeoutError:
            await self.running()
            self.observer.timed_out(step, runtime.monotonic())
            return
        await self.running()
        if refused:
            self.observer.refused(step, runtime.monotonic())
        else:
            self.answered[step.incarnation] = runtime.monotonic()
            self.observer.answered(step)

    async def _is_refused(self, target: int) -> bool:
        """Connect to a process. Returns whether that is refused, if there is an answer at all."""
        await runtime.sleep(HOP_SECONDS)
        ended = self.world.processes[target].ended
        cut = self.world.cut(self.incarnation, target, runtime.monotonic())
        if cut is Cut.EVERYTHING or ended is End.MACHINE:
            await asyncio.Event().wait()
        return ended is End.PROCESS

    async def _send_ping(self, target: int, hears: bool) -> None:
        process = self.world.processes[target]
        await process.running()
        process.receive_ping(self.incarnation, hears, self.position)
        if self.world.cut(self.incarnation, target, runtime.monotonic()) is Cut.ANSWERS:
            await asyncio.Event().wait()
        await runtime.sleep(HOP_SECONDS)

    def receive_ping(self, source: int, hears: bool, position: int) -> None:
        self.beats.pinged(source, runtime.monotonic(), hears=hears, position=position)
        self._pinged.set()

    async def _look(self, step: Step) -> None:
        try:
            count = await read_heartbeat(self.store, step.incarnation)
        except NeveError:
            await self.running()
            self.observer.look_failed(step)
        else:
            await self.running()
            self.observer.looked(step, count, runtime.monotonic())

    async def _ask(self, step: Step) -> None:
        about = self.brokers[step.incarnation]
        watchers = watchers_of(about, self.brokers.values(), self.world.watchers)
        others = [row.incarnation for row in watchers if row.incarnation != self.incarnation]
        refused = False
        for other in others:
            refused = refused or await self._is_refused_there(other, step.incarnation)
        await self.running()
        if refused:
            self.observer.confirmed(step, runtime.monotonic())
        else:
            self.observer.denied(step)

    async def _is_refused_there(self, other: int, target: int) -> bool:
        try:
            async with runtime.deadline(self.world.timing.interval_seconds):
                if await self._is_refused(other):
                    return False
                await self.world.processes[other].running()
                return await self.world.processes[other]._is_refused(target)
        except TimeoutError:
            return False

    # -- being watched -------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await self.running()
            count = self.beats.due(runtime.monotonic())
            if count is None:
                await self._wait(self._pinged, self.beats.next_at())
                continue
            try:
                async with runtime.deadline(self.world.timing.session_seconds / 3):
                    await write_heartbeat(self.store, self.incarnation, count)
            except (NeveError, TimeoutError):
                continue

    async def _wait(self, event: asyncio.Event, until: float | None) -> None:
        event.clear()
        seconds = None if until is None else max(0.0, until - runtime.monotonic())
        try:
            async with runtime.deadline(seconds):
                await event.wait()
        except TimeoutError:
            return
