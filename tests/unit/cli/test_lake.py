"""`neve lake status`: what is shown of each topic, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neve.cli import main
from neve.lake.pipeline import status
from neve.lake.pipeline.status import PartitionStatus, TopicStatus

AT_MS = 1_767_225_600_000  # 2026-01-01
ORDERS = TopicStatus(
    "orders",
    "lake.orders",
    last_commit_ms=AT_MS,
    rows=150,
    files=2,
    partitions=(PartitionStatus(0, 100, 120, 100), PartitionStatus(1, 50, 80, 50)),
)
CLICKS = TopicStatus(
    "clicks",
    "lake.clicks",
    last_commit_before_ms=AT_MS,
    rows=0,
    files=0,
    dead_letters=0,
    partitions=(PartitionStatus(0, None, 7),),
    lag_seconds=1.0,
)
GONE = TopicStatus("gone", "lake.gone", error="no such topic", error_ms=AT_MS)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text("store: ./nowhere\ntopics: [{topic: orders}]\n")
    return str(path)


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    file: str,
    *topics: TopicStatus,
    flags: tuple[str, ...] = (),
) -> tuple[int, str]:
    monkeypatch.setattr(status, "pipeline_status", lambda _: list(topics))
    code = main(["lake", "status", "-f", file, *flags])
    return code, capfd.readouterr().out


def test_offsets_and_times_are_in_the_table(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = shown(monkeypatch, capfd, file, ORDERS, CLICKS)
    titles, orders, clicks = text.splitlines()
    assert code == 0
    at = titles.index("COMMITTED / END")
    assert orders[at:].startswith("150 / 200 ")
    assert clicks[at:].startswith("- / 7 "), "no partition of it was started"
    at = titles.index("LAST COMMIT")
    assert orders[at:].startswith("2026-01-01 00:00:00+00:00 ")
    assert clicks[at:].startswith("before 2026-01-01 00:00:00+00:00 ")


def test_an_error_is_told_with_its_time_and_ends_with_1(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = shown(monkeypatch, capfd, file, ORDERS, GONE)
    assert code == 1
    row = [each.strip() for each in text.splitlines()[2].split("  ") if each]
    assert row[2:9] == ["unknown"] * 7
    assert row[-1] == "no such topic (since 2026-01-01 00:00:00+00:00)"


def test_programs_get_every_partition(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = shown(monkeypatch, capfd, file, ORDERS, CLICKS, flags=("--json",))
    orders, clicks = json.loads(text)
    assert code == 0
    assert [part["committed"] for part in orders["partitions"]] == [100, 50]
    assert (orders["last_commit_ms"], orders["last_commit_before_ms"]) == (AT_MS, None)
    assert (clicks["last_commit_ms"], clicks["last_commit_before_ms"]) == (None, AT_MS)


def test_programs_get_null_for_what_is_not_known(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, text = shown(monkeypatch, capfd, file, GONE, flags=("--json",))
    (row,) = json.loads(text)
    names = ("lag_records", "lag_seconds", "rows", "files", "dead_letters", "last_commit_ms")
    assert [row[name] for name in names] == [None] * 6
    assert row["partitions"] == []
