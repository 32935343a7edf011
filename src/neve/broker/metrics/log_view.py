"""The lag of the WAL and of tiering, and the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Iterator

from neve import runtime
from neve.broker.metrics.private_gauges import uploads_of
from neve.cluster.node import Node
from neve.log.wal.writer import WalWriter
from neve.serving.text import one

SLICE_ROWS = 500


class CommitLag:
    """How long appended records have waited without any commit, as seen by the calls so far."""

    def __init__(self) -> None:
        self._number = -1
        self._since = 0.0

    def seconds(self, writer: WalWriter) -> float:
        """Return the seconds since the last commit was seen; 0 if nothing waits."""
        if not writer.buffered_bytes:
            self._number = -1
            return 0.0
        now = runtime.monotonic()
        if writer.committed_end != self._number:
            self._number, self._since = writer.committed_end, now
        return now - self._since


def log_view(node: Node, lag: CommitLag) -> Iterator[str]:
    writer = node.writer
    yield one("neve_wal_buffered_bytes", writer.buffered_bytes)
    yield one("neve_wal_uploads", uploads_of(writer))
    yield one("neve_wal_committed_number", writer.committed_end)
    yield one("neve_wal_lag_seconds", lag.seconds(writer))
    logs = [leader.log for leader in node.led.partitions.values()]
    yield one("neve_partitions_led", len(logs))
    untiered, oldest = 0, None
    for start in range(0, len(logs), SLICE_ROWS):
        for log in logs[start : start + SLICE_ROWS]:
            untiered += log.tail_bytes
            if log.tail and (oldest is None or log.tail[0].since < oldest):
                oldest = log.tail[0].since
        yield ""
    yield one("neve_untiered_bytes", untiered)
    age = 0.0 if oldest is None else runtime.monotonic() - oldest
    yield one("neve_untiered_age_seconds", age)
