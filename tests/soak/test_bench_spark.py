"""The benchmarks on Spark, at a small scale: they run to their end, and compare the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.soak
SECONDS = 600


def bench(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "neve.cli", "bench", *arguments, "--json", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    # A figure that is missed at this scale says nothing; an error would leave no document.
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_reads_are_compared() -> None:
    found = bench("spark", "--scale", "0.005")
    names = {row["name"] for row in found["rows"]}
    assert {"parquet.100", "parquet.1000", "neve.100.records", "neve.1000.records"} <= names
    assert bool(found["without_kafka"]) == ("kafka.100" not in names)
    print(found["without_kafka"])


def test_a_pipeline_is_measured() -> None:
    found = bench("lake", "--scale", "0.005", "--seconds", "12")
    figures = {row["name"]: row["median"] for row in found["rows"]}
    assert figures["backlog.raw"] > 0
    assert figures["backlog.json"] > 0
    assert 0 < figures["steady.p50"] <= figures["steady.p99"] < 60
