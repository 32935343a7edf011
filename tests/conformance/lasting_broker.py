"""A broker that is ended and started again on the same bucket and port, with everything small.

Its memory holds little, its segments and roll-ups are short, so that whoever reads a topic from its
start comes from segments by way of roll-ups and WAL objects to what is in memory.
"""

from __future__ import annotations

import time
from pathlib import Path

from conformance.clients import WAIT_SECONDS
from support.brokers import RunningBroker, start_broker

SMALL = {
    "segment_bytes": 65_536,
    "segment_index_interval": 10,
    "wal_object_bytes": 16_384,
    "wal_tail_objects": 8,
    "tail_cache_bytes": 65_536,
    "maintenance_interval_ms": 50,
    "maintenance_gc_interval_ms": 500,
    "fetch_readahead_part_bytes": 8_192,
    "index_cache_memory_bytes": 65_536,
    "manifest_checkpoint_numbers": 4,
    "topics_auto_create": False,
    "group_initial_rebalance_delay_ms": 100,
    "group_min_session_timeout_ms": 500,
    "store_folder_fsync": False,
}


class LastingBroker:
    def __init__(self, folder: Path) -> None:
        self._bucket, self._log = folder / "bucket", folder / "log"
        self._running = start_broker(self._bucket, self._log, **SMALL)
        self.bootstrap = self._running.bootstrap

    @property
    def running(self) -> RunningBroker:
        return self._running

    def restart(self, *, kill: bool) -> None:
        self.end(kill=kill)
        self.start()

    def end(self, *, kill: bool) -> None:
        if kill:
            self._running.kill()
        else:
            assert self._running.stop() == 0, self._running.log

    def start(self) -> None:
        port = self._running.port
        self._running = start_broker(self._bucket, self._log, port=port, **SMALL)

    def segments(self, topic: str) -> int:
        return len(list(self._bucket.glob(f"topics/{topic}.*/*/segment-*.kfs")))

    def rollups(self) -> int:
        return len(list(self._bucket.glob("wal/*/rollup/*")))

    def wait_for_segments(self, topic: str, count: int) -> None:
        ends_at = time.monotonic() + WAIT_SECONDS
        while self.segments(topic) < count:
            assert time.monotonic() < ends_at, f"{self.segments(topic)} of {count} segments"
            time.sleep(0.05)

    def close(self) -> None:
        self.end(kill=False)
        assert "Traceback" not in self._running.log
