"""`neve bench`: what was measured, as lines or JSON, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import neve.bench.records
import neve.bench.storage
from neve.bench.scale import measure as scale
from neve.cli import bench_kafka, main


def test_results_are_shown_and_decide_the_exit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    result: dict[str, Any] = {"benchmark": "records", "results": [{"ratio": 9.5}], "passed": True}
    monkeypatch.setattr(neve.bench.records, "run", lambda: result)
    assert main(["bench", "records", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == result
    result["passed"] = False
    assert main(["bench", "records"]) == 1
    assert capfd.readouterr().out.splitlines() == [
        "benchmark: records",
        "results:",
        "  1:",
        "    ratio: 9.5",
        "passed: False",
    ]


def test_storage_takes_its_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(runs: int, on_progress: Any) -> dict[str, Any]:
        on_progress(1, runs, "something")
        return {"runs": runs, "passed": True}

    monkeypatch.setattr(neve.bench.storage, "run", measured)
    assert main(["bench", "storage", "--runs", "3", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"runs": 3, "passed": True}
    assert main(["bench", "storage", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["runs"] == neve.bench.storage.RUNS_DEFAULT


def test_scale_takes_its_amounts(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[scale.Plan] = []

    def measured(plan: scale.Plan, on_progress: Any) -> dict[str, Any]:
        on_progress(0, plan.steps)
        plans.append(plan)
        return {"passed": True}

    monkeypatch.setattr(scale, "run", measured)
    amounts = ["--brokers", "4", "--partitions", "60", "--seconds", "1", "--idle-seconds", "2"]
    assert main(["bench", "scale", *amounts]) == 0
    assert main(["bench", "scale", "--json"]) == 0
    given = scale.Plan(brokers=4, partitions=60, seconds=1.0, idle_seconds=2.0)
    assert plans == [given, scale.Plan()]


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_a_load_is_told_in_lines_unless_json_is_asked_for(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    result = {"records": 3, "latency_ms": {"p50": 1.5}, "errors": 0, "error_reasons": []}

    @contextmanager
    def no_broker(_: Any) -> Iterator[Any]:
        with bench_kafka.output.progress("records") as bar:
            yield {}, bar

    monkeypatch.setattr(bench_kafka, "_load", no_broker)
    for module in (bench_kafka.producing, bench_kafka.consuming, bench_kafka.probing):
        monkeypatch.setattr(module, "run", lambda *_: result)
    assert main(["bench", command, "--topic", "t"]) == 0
    assert capfd.readouterr().out.splitlines() == ["records: 3", "latency ms: p50 1.5", "errors: 0"]
    assert main(["bench", command, "--topic", "t", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == result
    assert main(["bench", command, "--help"]) == 0
    assert "Print one JSON document instead of lines" in capfd.readouterr().out
