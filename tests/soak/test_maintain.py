"""Merge and expire in a loop beside a loaded broker: every read is right, the bucket stays clean.

`SOAK_MAINTAIN_SECONDS` chooses how long the long run takes; five minutes without it.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lake_session import lake_session
from soak.maintain_loop import MaintainLoop

SAMPLE_SECONDS = 5.0
SOAK_SECONDS = 300.0


def check(loop: MaintainLoop) -> None:
    report = loop.run()
    print(dict(loop.counts))
    wrong = [(row.severity, row.key, row.what) for row in report.findings]
    assert report.ok, wrong
    for what, count in loop.least.items():
        assert loop.counts[what] >= count, (what, loop.counts)


@pytest.mark.slow
def test_for_some_seconds(tmp_path: Path) -> None:
    least = Counter(produced=1_000, merged=4, expired=1, consumed=2, scanned=1)
    check(MaintainLoop(tmp_path, SAMPLE_SECONDS, least))


@pytest.mark.soak
def test_for_minutes_with_spark(tmp_path: Path) -> None:
    seconds = float(os.environ.get("SOAK_MAINTAIN_SECONDS") or SOAK_SECONDS)
    with lake_session(tmp_path / "spark") as spark:

        def scan(url: str, topic: str) -> dict[int, list[tuple[int, bytes]]]:
            options = {"store": url, "subscribe": topic, "failOnDataLoss": "false"}
            rows = spark.read.format("neve").options(**options).load()
            found: dict[int, list[tuple[int, bytes]]] = {}
            for row in rows.select("partition", "offset", "value").collect():
                found.setdefault(row.partition, []).append((row.offset, bytes(row.value)))
            return found

        least = Counter(produced=10_000, merged=50, expired=10, consumed=3, scanned=1)
        check(MaintainLoop(tmp_path, seconds, least, scan))
