"""Replication: this process follows streams of others, and notifies those that follow its own.

No record bytes go from broker to broker: a follower reads the leader's stream from the bucket. A
leader only sends how far it has committed, in a few bytes, and the answer says how far the follower
has read. A follower that hears nothing looks in the bucket for the next number.

The state of the cluster determines the followers of each stream. The leader of a stream records
which of its followers lag, so that every broker shows the same replicas and in-sync replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from neve import runtime
from neve.cluster.followed_stream import FollowedCache, FollowedStream
from neve.cluster.follower_progress import FollowerProgress
from neve.cluster.followers import FollowerSets
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.own_stream import OwnStream
from neve.cluster.peer_link import PeerError, PeerLink
from neve.cluster.placement import SHARING_LEVEL
from neve.cluster.replicas import Replicas
from neve.cluster.state import ClusterState, Topic, is_live
from neve.errors import NeveError
from neve.log.wal.object import Slice
from neve.serving.logs import event
from neve.settings import Settings
from neve.store.port import Store

_log = logging.getLogger(__name__)

# How long the tail of a dead process's stream is kept in memory for take-overs at most.
TAKE_OVER_SECONDS_MAX = 120.0
# A notification that is not answered within this time has failed.
NOTIFY_SECONDS_MAX = 1.0
# How often idle copies are closed and lagging followers are recorded.
TIDY_SECONDS = 1.0
RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX = 100, 5_000


class Replication:
    """The followed streams, their copies, and the followers of the own stream, of one process.

    It does nothing before `start`. Call `close` before the node's.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        cluster: ClusterLog,
        led: LedPartitions,
        own: OwnStream,
        *,
        memory: runtime.MemoryBudget,
    ) -> None:
        self._store = store
        self._prefetch = settings.prefetch
        self._cluster = cluster
        self._incarnation = own.incarnation
        self._led = led
        self._follow_seconds = settings.cluster.follow_ms / 1000
        self._lag_seconds = settings.cluster.follow_lag_ms / 1000
        self._link: PeerLink | None = None
        self._tasks = runtime.Tasks(on_failure=_failed)
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._committed_end = 0
        self._committed = asyncio.Event()
        # Streams of dead processes, for their take-over, and until when at most they are kept.
        self._dead: dict[int, tuple[FollowedStream, float]] = {}
        self.sets = FollowerSets(settings.cluster.followers)
        self.cache = FollowedCache(own, settings.cache.tail_bytes, memory)
        memory.add(self.cache.share)
        self.progress = FollowerProgress(self._lag_seconds, self._follow_seconds / 2)
        self.streams: dict[int, FollowedStream] = {}
        self.replicas = Replicas(store, cluster, self.streams, settings.prefetch, led.memory.count)

    def start(self, link: PeerLink) -> None:
        """Follow, and notify followers, from now on."""
        self._link = link
        self.apply(self._cluster.state)
        self._tasks.start(self._notify(), name="replication-notify")
        self._tasks.start(self._tidy(), name="replication-tidy")

    async def close(self) -> None:
        self._link = None
        await self._tasks.close()
        await self.replicas.close()
        for stream in [*self.streams.values(), *(stream for stream, _ in self._dead.values())]:
            stream.forget()
        self.streams.clear()
        self._dead.clear()

    # -- changes -----------------------------------------------------------------------------

    def apply(self, state: ClusterState) -> None:
        """Follow the streams that a new state of the cluster gives to this process."""
        if self._link is None:
            return
        now = runtime.monotonic()
        wanted = {key for key, rows in self.sets.all(state).items() if self._incarnation in rows}
        for key in [key for key in self.streams if key not in wanted]:
            self._stop(key, is_dead=not is_live(state.brokers, key))
        for key in sorted(wanted):
            if key not in self.streams:
                self._begin(key)
        self.progress.follow(self.sets.of(state, self._incarnation), now)
        self._committed.set()
        self.replicas.apply(state)

    def _begin(self, incarnation: int) -> None:
        stream = self.streams[incarnation] = FollowedStream(
            self._store,
            incarnation,
            self.cache,
            self._prefetch,
            lag_seconds=self._lag_seconds,
            on_object=self.replicas.on_object,
            on_gap=self.replicas.on_gap,
        )
        event(_log, logging.INFO, "following a stream", incarnation=incarnation)
        self._loops[incarnation] = self._tasks.start(
            self._follow(stream), name=f"follow {incarnation}"
        )

    def _stop(self, incarnation: int, *, is_dead: bool) -> None:
        stream = self.streams.pop(incarnation)
        self._loops.pop(incarnation).cancel()
        if is_dead:
            self._dead[incarnation] = stream, runtime.monotonic() + TAKE_OVER_SECONDS_MAX
        else:
            stream.forget()
        event(_log, logging.INFO, "stream not followed any more", incarnation=incarnation)

    # -- following ---------------------------------------------------------------------------

    def heard(self, sender: int, end: int) -> int:
        """Take note of how far another process has committed its stream.

        Returns the number up to which this process has read it, or -1.
        """
        stream = self.streams.get(sender)
        return -1 if stream is None else stream.heard(end)

    async def _follow(self, stream: FollowedStream) -> None:
        backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
        failure = ""
        while True:
            stream.due.clear()
            try:
                if self._is_due(stream) and await stream.read_on():
                    continue
                if stream.sealed:
                    await self._cluster.refresh()  # it names the new leaders
            except NeveError as error:
                if str(error) != failure:
                    failure = str(error)
                    _log.warning(
                        "the stream of %d cannot be followed: %s", stream.incarnation, error
                    )
                await backoff.pause()
                continue
            backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
            await _wait(stream.due, self._follow_seconds)

    def _is_due(self, stream: FollowedStream) -> bool:
        if stream.position is None or stream.lag_objects or stream.heard_at is None:
            return True
        return runtime.monotonic() - stream.heard_at >= self._follow_seconds

    def shown_lag_seconds(self, stream: FollowedStream) -> float:
        """Return how long a follower has lagged: 0 if it has all that it could have heard of."""
        is_level = stream.position is not None and not stream.lag_objects
        # Between two looks, or two notifications, a follower with nothing to read does not lag.
        if is_level and stream.lag_seconds <= 2 * self._follow_seconds:
            return 0.0
        return stream.lag_seconds

    def covering(self, incarnation: int, entry: Slice) -> list[tuple[Slice, memoryview]] | None:
        """Return slices in memory with exactly the records of this one, for a take-over."""
        stream = self.streams.get(incarnation)
        if stream is None and incarnation in self._dead:
            stream = self._dead[incarnation][0]
        return None if stream is None else stream.covering(entry)

    # -- followers ---------------------------------------------------------------------------

    def committed(self, end: int) -> None:
        """Notify the followers soon: all numbers of the own stream below `end` are committed."""
        self._committed_end = end
        self._committed.set()

    def recommended(self, rack: str, topic: Topic, number: int) -> int | None:
        """Return the node id of an in-sync follower in a consumer's rack; None if there is none.

        Several followers in the rack share the partitions. A leader in the rack has no follower
        recommended.
        """
        state = self._cluster.state
        own = state.brokers.get(self._incarnation)
        if own is None or own.rack == rack:
            return None
        now = runtime.monotonic()
        found = [
            state.brokers[each].node_id
            for each in self.sets.in_sync(state, self._incarnation)
            if state.brokers[each].rack == rack and self.progress.is_recommended(each, now)
        ]
        return found[(number + topic.id_bytes[0]) % len(found)] if found else None

    async def _notify(self) -> None:
        while True:
            self._committed.clear()
            end, now = self._committed_end, runtime.monotonic()
            for key in self.progress.due(end, now):
                self.progress.sent(key, end, now)
                self._tasks.start(self._notify_one(key, end))
            at = self.progress.next_at(end)
            seconds = self._follow_seconds if at is None else max(0.0, at - runtime.monotonic())
            await _wait(self._committed, min(seconds, self._follow_seconds))

    async def _notify_one(self, key: int, end: int) -> None:
        target, link = self._cluster.state.brokers.get(key), self._link
        try:
            if target is None or link is None:
                self.progress.failed(key)
            else:
                self.progress.answered(key, await link.notify(target, end, NOTIFY_SECONDS_MAX))
        except PeerError:
            self.progress.failed(key)
        finally:
            self._committed.set()

    # -- housekeeping ------------------------------------------------------------------------

    async def _tidy(self) -> None:
        while True:
            await runtime.sleep(TIDY_SECONDS)
            self.replicas.tidy()
            now = runtime.monotonic()
            for key, (stream, ends_at) in list(self._dead.items()):
                if now >= ends_at or not self._is_needed(key):
                    del self._dead[key]
                    stream.forget()
            with contextlib.suppress(NeveError):  # tried again soon
                await self._record_lagging()

    def _is_needed(self, incarnation: int) -> bool:
        """Whether this process is to lead a partition of that stream that it does not serve yet."""
        own, led = self._incarnation, self._led.partitions
        return any(
            partition.leader == own
            and any(part.incarnation == incarnation for part in partition.streams)
            and (topic.id_bytes, number) not in led
            for topic in self._cluster.state.topics.values()
            for number, partition in enumerate(topic.partitions)
        )

    async def _record_lagging(self) -> None:
        state = self._cluster.state
        lagging = self.progress.lagging(runtime.monotonic())
        known = state.lagging.get(self._incarnation, ())
        if lagging != known and state.feature_level >= SHARING_LEVEL:
            event(_log, logging.INFO, "followers in sync have changed", lagging=list(lagging))
            await self._cluster.set_lagging(self._incarnation, lagging)


async def _wait(due: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with runtime.deadline(seconds):
            await due.wait()


def _failed(failure: BaseException) -> None:
    _log.error("a task of the replication failed", exc_info=failure)
