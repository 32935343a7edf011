"""The leader of one partition: its log, its topic's config, and its background work.

A `PartitionLeader` exists from the moment this process serves the partition until it loses it: the
topic is deleted, another process leads the partition, or this process ends. Handlers and groups
look it up once per request and then call it.

Background work (tiering, retention, deletion of doomed objects) writes objects of the topic. It
obeys two bounds, so that a deleted topic can be purged: a leader whose view of the cluster log is
old reads the log first, and no run takes longer than half of `cluster.purge.delay.ms`.
docs/contributors/cluster.md derives the purge from them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.cluster.maintenance_queues import MaintenanceQueues
from neve.cluster.retention import NEVER_MS, due_ms, retain
from neve.cluster.state import PartitionState
from neve.cluster.topic_config import TopicConfig
from neve.errors import FencedError, InvalidError, NeveError
from neve.log.cached_slice import CachedObject
from neve.log.log_start import move_start
from neve.log.partition import Appended, PartitionLog
from neve.log.wal.object import Slice
from neve.records.batch import BatchHeader
from neve.serving.logs import event
from neve.settings import SegmentSettings

T = TypeVar("T")

# Wall clocks are set and drift: retention that is due by the wall clock is checked this often.
RETENTION_CHECK_SECONDS_MAX = 3600.0

ABANDONED_REASON = "their WAL store was abandoned"

_log = logging.getLogger(__name__)


class PartitionLeader:
    """One partition that this process leads."""

    __slots__ = (
        "__weakref__",
        "_config",
        "_expires_at_ms",
        "_is_tiering",
        "_queues",
        "_retained_at",
        "log",
    )

    def __init__(
        self,
        log: PartitionLog,
        config: TopicConfig | InvalidError,
        queues: MaintenanceQueues,
        *,
        has_earlier_streams: bool = False,
    ) -> None:
        self.log = log
        self._config = config
        self._queues = queues
        self._is_tiering = False
        self._expires_at_ms = 0  # wall clock: when records may expire next
        self._retained_at: float | None = None  # monotonic clock: when retention last ran
        if has_earlier_streams:
            queues.with_earlier_streams[self] = None
        self.reschedule()

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def is_leading(self) -> bool:
        """Whether this process still serves the partition, as far as it knows without a request."""
        return self.log.closed is None

    @property
    def config(self) -> TopicConfig:
        """The topic's effective config.

        Raises InvalidError if the stored configs are not valid, FencedError after the partition was
        lost.
        """
        config = self._config
        if self.log.closed is not None:
            raise self._not_leading()
        if isinstance(config, InvalidError):
            raise config
        return config

    def _not_leading(self) -> NeveError:
        return FencedError(f"this node does not lead {self.name}")

    def configure(self, config: TopicConfig | InvalidError, segment: SegmentSettings) -> None:
        """Apply changed configs of the topic."""
        self._config = config
        self.log.configure(segment)
        self.reschedule()

    def close(self, error: NeveError) -> None:
        """Stop serving the partition because of `error`. Waiting readers are notified."""
        self.log.close(error)
        self._queues.drop(self)

    def stop(self, error: NeveError) -> None:
        """Refuse appends and reads because of `error`, until `resume` or `close`."""
        self.log.stop(error)
        self._queues.drop(self)

    def resume(self) -> None:
        """Serve the partition again after `stop`."""
        self.log.resume()
        self._queues.with_earlier_streams[self] = None  # dropped again if there are none
        self.reschedule()

    # -- records -----------------------------------------------------------------------------

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader | None = None,
        *,
        admitted: bool = False,
    ) -> Appended:
        """Append one checked batch: see `PartitionLog.append`."""
        return self.log.append(batch, header, admitted=admitted)

    def committed(self, cached: CachedObject, entry: Slice) -> None:
        """Add a slice that the WAL committed. Called in the order of offsets."""
        self.log.committed(cached, entry)
        if self._is_tiering:
            return  # rescheduled when the run ends
        tiering = self._queues.tiering
        if self.log.tiering_due():
            tiering.set_if_earlier(self, runtime.monotonic())
            self._queues.notify()
        elif self not in tiering:  # the first untiered slice: from now on the tail has an age
            self.reschedule()

    # -- scheduling --------------------------------------------------------------------------

    def reschedule(self) -> None:
        """Recompute which background work is due, and when, after a change."""
        if not self.is_leading:
            return
        if not self._is_tiering:
            self._schedule_tiering()
        state = self.log.manifest.state
        if state.doomed or state.doomed_runs:
            self._queues.collectable[self] = None
        try:
            self._schedule_retention(due_ms(self.log, self.config))
        except InvalidError:
            self._schedule_retention(0)  # the run that reads the config reports it

    def _schedule_tiering(self) -> None:
        """Schedule tiering by age. A commit that makes the tail large enough moves it forward."""
        tiering = self._queues.tiering
        if self.log.tiering_due():
            tiering.set(self, runtime.monotonic())
        elif self.log.tail:
            tiering.set(self, self.log.tail[0].since + self._segment_ms() / 1000)
        else:
            tiering.drop(self)

    def _segment_ms(self) -> int:
        try:
            return self.config.segment_ms
        except NeveError:
            return self._queues.segment_ms

    def _schedule_retention(self, at_ms: int) -> None:
        """Schedule retention for a wall clock time, but at most once each retention.check.ms.

        Records that have expired when they arrive (they may carry any time) are kept that long too.
        """
        retention, now = self._queues.retention, runtime.monotonic()
        check_seconds = self._queues.retention_check_ms / 1000
        if at_ms >= NEVER_MS:
            retention.drop(self)
            return
        self._expires_at_ms = at_ms
        # Only records expire by the wall clock. If it is set back, what was scheduled while it was
        # ahead must not wait until it gets there again.
        due = now + min((at_ms - runtime.now_ms()) / 1000, RETENTION_CHECK_SECONDS_MAX)
        if self._retained_at is not None:
            due = max(due, self._retained_at + check_seconds)
        if due > now:
            retention.set(self, due)
        else:  # repeated changes do not postpone it for ever
            retention.set_if_earlier(self, now + check_seconds)

    def retention_due(self) -> bool:
        """Whether retention is due by the wall clock. If it is not, it is scheduled again."""
        if self._expires_at_ms <= runtime.now_ms():
            return True
        self._schedule_retention(self._expires_at_ms)
        return False

    def postpone_tiering(self, seconds: float) -> None:
        if self.is_leading and self.log.tail:
            self._queues.tiering.set(self, runtime.monotonic() + seconds)

    def postpone_retention(self, seconds: float) -> None:
        if self.is_leading:
            self._queues.retention.set(self, runtime.monotonic() + seconds)

    # -- background work ---------------------------------------------------------------------

    async def _write(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run work that may write objects of the topic. Returns None if we no longer lead it."""
        return await self._queues.bounded(self.log, work)

    async def tier(self) -> bool:
        """Tier one segment. Returns True if a segment was written."""
        log = self.log
        self._is_tiering = True
        # Records that arrive while it waits for memory are not part of what it waits for.
        size = log.next_segment_bytes
        try:
            async with self._queues.memory.taken(log.tiering_bytes(size)):
                done = bool(await self._write(lambda: log.tier(size)))
            about = {"partition": log.name, "tiered_offset": log.tiered_offset, "written": done}
            event(_log, logging.DEBUG, "partition tiered", **about)
        finally:
            self._is_tiering = False
            self.reschedule()
        if done:
            self._queues.on_tiered()
        return done

    async def retain(self) -> None:
        """Move the log's start as the topic's retention.ms and retention.bytes require."""
        if not self.is_leading:
            return
        config = self.config
        at_ms = await self._write(lambda: retain(self.log, config))
        if at_ms is not None and self.is_leading:
            self._retained_at = runtime.monotonic()
            self.reschedule()
            self._schedule_retention(at_ms)

    async def move_start(self, offset: int) -> None:
        """Make `offset` the log's first offset.

        Raises the reason if this process no longer leads the partition.
        """
        log, end = self.log, self.log.high_watermark
        if await self._write(lambda: move_start(log.manifest, offset, end=end)) is None:
            raise log.closed or self._not_leading()
        self.reschedule()

    async def collect(self) -> int:
        """Delete the objects that the manifest has doomed. Returns how many were deleted."""
        self._queues.collectable.pop(self, None)
        return len(await self._write(self.log.manifest.collect) or ())

    def has_lost(self, current: PartitionState) -> bool:
        """Whether untiered records lay in a stream that the cluster log has given up."""
        streams = {part.incarnation for part in current.streams}
        return self.is_leading and bool(self.log.untiered.outside(streams))

    async def give_up(self, current: PartitionState) -> None:
        """Record the untiered records of streams that the cluster log has given up as lost."""
        streams = {part.incarnation for part in current.streams}
        lost = await self._write(lambda: self.log.give_up(streams, ABANDONED_REASON))
        for first, end in lost or ():
            about = {"partition": self.name, "first": first, "last": end - 1}
            event(_log, logging.ERROR, "records lost with a WAL store", **about)
        self.reschedule()

    def unneeded_epoch(self, current: PartitionState) -> int | None:
        """The newest earlier epoch whose stream the partition no longer needs; None if none is."""
        # Slices are ordered by epoch: everything before the oldest slice is tiered.
        oldest = self.log.tail[0].entry.leader_epoch if self.log.tail else self.log.epoch
        return oldest - 1 if any(part.epoch < oldest for part in current.streams) else None
