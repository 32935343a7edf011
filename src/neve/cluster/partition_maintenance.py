"""What a leader does for its logs beside appending: tier, retain, collect, let go of old streams.

For each kind of work it is known which logs have something due, and when, so that a node with
thousands of idle partitions does nothing. A process whose view of the cluster log is old looks at
it before it writes, and no piece of work takes longer than a bound: after that, nobody writes
objects of a topic that was deleted meanwhile. docs/contributors/cluster.md says what rests on it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.cluster.led_partitions import LedPartitions
from neve.cluster.log import ClusterLog
from neve.cluster.recovery import raise_first
from neve.cluster.retention import NEVER_MS, due_ms, retain
from neve.errors import FencedError, InvalidError, NeveError, UnavailableError
from neve.log.partition import PartitionLog
from neve.log.retention import move_start
from neve.serving.logs import event
from neve.settings import COPIES_OF_A_SEGMENT, Settings

T = TypeVar("T")

# Clocks are set and drift: what is due by the wall clock is looked at this often at least.
LOOK_SECONDS_MAX = 3600.0

_log = logging.getLogger(__name__)


class PartitionMaintenance:
    """Tends the logs of one node."""

    def __init__(self, settings: Settings, cluster: ClusterLog, led: LedPartitions) -> None:
        self._cluster = cluster
        self._led = led
        self._view_age_max = self._run_max = settings.cluster.purge_delay_ms / 2000
        self._segment_ms = settings.segment.ms
        self._retention_check_ms = settings.maintenance.retention_check_ms
        self.tiering: runtime.DeadlineQueue[PartitionLog] = runtime.DeadlineQueue()
        self.retention: runtime.DeadlineQueue[PartitionLog] = runtime.DeadlineQueue()
        self.collectable: dict[PartitionLog, None] = {}
        self._running: dict[PartitionLog, None] = {}
        self.memory = runtime.MemoryShare(
            "segments-being-built", settings.maintenance.tiering_memory_bytes
        )
        self._retain_at_ms: dict[PartitionLog, int] = {}
        self._retained_ms: dict[PartitionLog, int] = {}
        self._with_old_streams: dict[PartitionLog, None] = {}
        led.on_drop.append(self._forget)
        led.on_configured.append(self.note)

    def _forget(self, log: PartitionLog) -> None:
        self.tiering.drop(log)
        self.retention.drop(log)
        self.collectable.pop(log, None)
        self._with_old_streams.pop(log, None)
        self._retain_at_ms.pop(log, None)
        self._retained_ms.pop(log, None)

    def _is_led(self, log: PartitionLog) -> bool:
        return self._led.partitions.get((log.topic_id, log.partition)) is log

    # -- knowing what is due -----------------------------------------------------------------

    def adopt(self, log: PartitionLog) -> None:
        """A log that is led from now on."""
        topic = self._cluster.state.topic_by_id(log.topic_id)
        if topic is not None and len(topic.partitions[log.partition].streams) > 1:
            self._with_old_streams[log] = None
        self.note(log)

    def committed(self, log: PartitionLog) -> bool:
        """Records were committed; whether the log is to be tiered at once."""
        if log in self._running:
            return False  # looked at when the run has ended
        if log.tiering_due():
            self.tiering.set_if_earlier(log, runtime.monotonic())
            return True
        if log not in self.tiering:  # the first that waits: it has an age from now on
            self.note(log)
        return False

    def _set_tiering(self, log: PartitionLog) -> None:
        """When it is tiered by age, unless it is large enough before."""
        if log.tiering_due():
            self.tiering.set(log, runtime.monotonic())
        elif log.tail:
            self.tiering.set(log, log.tail[0].since + self._age_ms(log) / 1000)
        else:
            self.tiering.drop(log)

    def _age_ms(self, log: PartitionLog) -> int:
        try:
            return self._led.config_of(log).segment_ms
        except NeveError:
            return self._segment_ms

    def note(self, log: PartitionLog) -> None:
        """Something about a log has changed: see what is due when."""
        if not self._is_led(log):
            return
        if log not in self._running:
            self._set_tiering(log)
        state = log.manifest.state
        if state.doomed or state.doomed_runs:
            self.collectable[log] = None
        try:
            self._set_retention(log, due_ms(log, self._led.config_of(log)))
        except InvalidError:
            self._set_retention(log, 0)  # told by whoever looks at it

    def _set_retention(self, log: PartitionLog, at_ms: int) -> None:
        """Look at it at that time, but at most once each retention.check.ms.

        What has expired as it comes (records may carry any time) is kept for as long, too.
        """
        if at_ms >= NEVER_MS:
            self.retention.drop(log)
            return
        now_ms = runtime.now_ms()
        if log in self._retained_ms:
            at_ms = max(at_ms, self._retained_ms[log] + self._retention_check_ms)
        if at_ms <= now_ms:
            at_ms = now_ms + self._retention_check_ms
            if log in self.retention and self._retain_at_ms[log] > now_ms:
                at_ms = min(at_ms, self._retain_at_ms[log])  # never put off further and further
        self._retain_at_ms[log] = at_ms
        seconds = (at_ms - now_ms) / 1000
        self.retention.set(log, runtime.monotonic() + min(seconds, LOOK_SECONDS_MAX))

    def retention_due(self, log: PartitionLog) -> bool:
        """Whether a log that came up is due by the wall clock; else it comes up again."""
        at_ms = self._retain_at_ms.get(log, 0)
        if at_ms <= runtime.now_ms():
            return True
        self._set_retention(log, at_ms)
        return False

    def put_off_tiering(self, log: PartitionLog, seconds: float) -> None:
        """Leave a log alone for a while."""
        if self._is_led(log) and log.tail:
            self.tiering.set(log, runtime.monotonic() + seconds)

    def put_off_retention(self, log: PartitionLog, seconds: float) -> None:
        """Leave a log alone for a while."""
        if self._is_led(log):
            self.retention.set(log, runtime.monotonic() + seconds)

    # -- doing it ----------------------------------------------------------------------------

    async def _write(self, log: PartitionLog, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do something that may write objects of a log's topic; None where we lead it no more.

        Not with an old view of the cluster, and not for long: see what this module promises.
        """
        if runtime.monotonic() - self._cluster.read_at > self._view_age_max:
            await self._cluster.refresh()
        if not self._is_led(log):
            return None
        try:
            with self._led.working(log.topic_id):
                async with runtime.deadline(self._run_max):
                    return await work()
        except TimeoutError:
            raise UnavailableError(
                log.manifest.keys.prefix,
                f"it took longer than {self._run_max} s (half of cluster.purge.delay.ms)",
            ) from None

    async def tier(self, log: PartitionLog) -> bool:
        """Tier one segment of a log that we still lead; whether that was done."""
        self._running[log] = None
        try:
            async with self.memory.taken(COPIES_OF_A_SEGMENT * log.next_segment_bytes):
                done = bool(await self._write(log, log.tier))
            about = {"partition": log.name, "tiered_offset": log.tiered_offset, "written": done}
            event(_log, logging.DEBUG, "partition tiered", **about)
            return done
        finally:
            self._running.pop(log, None)
            self.note(log)

    async def tier_all_due(self) -> list[NeveError]:
        """Tier whatever is due; what failed."""
        failures: list[NeveError] = []
        for log in list(self._led.partitions.values()):
            try:
                while log.tiering_due() and await self.tier(log):
                    pass
            except NeveError as error:
                failures.append(error)
        return failures

    async def retain(self, log: PartitionLog) -> None:
        """Move one log's start as its topic's configs say."""
        config = self._led.config_of(log) if self._is_led(log) else None
        if config is None:
            return
        at_ms = await self._write(log, lambda: retain(log, config))
        if at_ms is not None and self._is_led(log):
            self._retained_ms[log] = runtime.now_ms()
            self.note(log)
            self._set_retention(log, at_ms)

    async def move_start(self, log: PartitionLog, offset: int) -> None:
        """Make this a log's first offset, because somebody asked for it."""
        end = log.high_watermark
        if await self._write(log, lambda: move_start(log.manifest, offset, end=end)) is None:
            raise log.closed or FencedError(f"this node does not lead {log.name}")
        self.note(log)

    async def retain_all(self) -> None:
        failures: list[NeveError] = []
        for log in list(self._led.partitions.values()):
            try:
                await self.retain(log)
            except NeveError as error:
                failures.append(error)
        raise_first(failures)

    async def collect(self, log: PartitionLog) -> int:
        """Delete what one log's manifest has doomed; how many objects went."""
        self.collectable.pop(log, None)
        return len(await self._write(log, log.manifest.collect) or ())

    def may_let_go(self) -> bool:
        """Whether some partition may need an earlier stream no more, told without a request."""
        return bool(self._not_needed())

    async def let_go(self) -> None:
        """Tell the cluster which earlier streams our partitions no longer need."""
        parts = self._not_needed()
        if parts:
            await self._cluster.tiered(parts)

    def _not_needed(self) -> list[tuple[str, int, int]]:
        parts: list[tuple[str, int, int]] = []
        for log in list(self._with_old_streams):
            topic = self._cluster.state.topic_by_id(log.topic_id)
            if topic is None or len(topic.partitions[log.partition].streams) < 2:
                self._with_old_streams.pop(log, None)
                continue
            # Slices lie in the order of epochs: what comes before the oldest slice is all tiered.
            oldest = log.tail[0].entry.leader_epoch if log.tail else log.epoch
            if any(part.epoch < oldest for part in topic.partitions[log.partition].streams):
                parts.append((topic.topic_id, log.partition, oldest - 1))
        return parts
