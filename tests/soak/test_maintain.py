"""Merge and expire in a loop beside a loaded broker: every read is right, the bucket stays clean.

`SOAK_MAINTAIN_SECONDS` chooses how long the long run takes; five minutes without it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from soak.maintain_loop import MaintainLoop, Scanned, WrongReadError
from support.lake_session import lake_session

SAMPLE_SECONDS = 5.0
SOAK_SECONDS = 300.0
SCAN_SECONDS_MAX = 60.0
SPARK_PATIENCE_SECONDS = 300.0
"""Spark on a machine that does much else takes a minute for what it does in seconds."""
SPARK_RETENTION_BYTES = 2_000_000
"""Some ten seconds of what is produced: time for a scan to end before retention reaches it."""


def check(loop: MaintainLoop) -> None:
    report = loop.run()
    print(dict(loop.counts))
    wrong = [(row.severity, row.key, row.what) for row in report.findings]
    assert report.ok, wrong
    assert not report.garbage, wrong
    for what, count in loop.least.items():
        assert loop.counts[what] >= count, (what, loop.counts)


@pytest.mark.parametrize(
    ("offsets", "start_after", "whole"),
    [
        (range(10, 20), 10, True),
        (range(10, 23), 10, True),  # what came meanwhile
        (range(14, 20), 14, False),  # retention has passed its beginning
        ([10, 11, *range(15, 20)], 15, False),
        ([], 20, False),
        ([], 10, None),
        (range(10, 19), 10, None),
        (range(10, 19), 19, None),
        (range(11, 20), 10, None),
        (range(14, 20), 13, None),
        ([*range(10, 15), *range(16, 20)], 10, None),
        ([*range(10, 15), *range(14, 20)], 10, None),
    ],
)
def test_a_scan_that_lacks_or_repeats_anything_is_told(
    tmp_path: Path, offsets: Iterable[int], start_after: int, whole: bool | None
) -> None:
    loop = MaintainLoop(tmp_path, 1.0)
    rows = [(offset, b"v") for offset in offsets]
    bounds = {0: (10, 20)}, {0: (start_after, 30)}
    if whole is None:
        with pytest.raises(WrongReadError):
            loop.check_scan(0, rows, *bounds)
    else:
        assert loop.check_scan(0, rows, *bounds) == whole


@pytest.mark.slow
def test_for_some_seconds(tmp_path: Path) -> None:
    least = Counter(produced=1_000, merged=4, expired=1, consumed=2, scanned=3)
    check(MaintainLoop(tmp_path, SAMPLE_SECONDS, least))


@pytest.mark.soak
def test_for_minutes_with_spark(tmp_path: Path) -> None:
    seconds = float(os.environ.get("SOAK_MAINTAIN_SECONDS") or SOAK_SECONDS)
    with lake_session(tmp_path / "spark") as spark:

        def scan(url: str, topic: str) -> Scanned:
            options = {"store": url, "subscribe": topic, "failOnDataLoss": "false"}
            rows = spark.read.format("neve").options(**options).load()
            columns = rows.select("partition", "offset", "value").toArrow().to_pydict().values()
            found: Scanned = {}
            for partition, offset, value in zip(*columns, strict=True):
                found.setdefault(partition, []).append((offset, value))
            return found

        least = Counter(produced=10_000, merged=50, expired=10, consumed=3)
        least["scanned"] = max(3, int(seconds / SCAN_SECONDS_MAX))
        loop = MaintainLoop(tmp_path, seconds, least, scan)
        loop.retention_bytes = SPARK_RETENTION_BYTES
        loop.patience_seconds = SPARK_PATIENCE_SECONDS
        check(loop)
