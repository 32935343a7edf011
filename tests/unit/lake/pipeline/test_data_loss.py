"""Offsets that retention removed before a pipeline read them: told, and the pipeline goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neve.bucket.abandon import OFFSETS_LEAPT
from neve.bucket.planning import PartitionPlan
from neve.bucket.sync_bucket import Bucket
from neve.cli import lake_run as cli
from neve.cli import main
from neve.errors import DamagedError
from neve.lake.pipeline import topic as topic_module
from neve.lake.pipeline.data_loss import PARTITIONS_SHOWN, loss_of
from neve.lake.pipeline.http_pages import PipelinePages
from neve.lake.pipeline.runner import pipeline_catalog
from neve.lake.pipeline.status import TopicStatus, pipeline_status
from neve.lake.tables import CommitKind, TopicProgress
from neve.lake.tables.last_error import TEXT_MAX, record_error
from unit.lake.pipeline.pipeline_scene import FakeSpark, Scene

LOST = (
    "t: 6 offsets were removed by retention (or DeleteRecords) before they were read into lake.t, "
    "which lacks them permanently: 1 to 4 of partition 0, 1 to 2 of partition 1"
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A table with one record of each partition, whose topic has more, and lost some of it."""
    made = Scene(tmp_path)
    made.produce("t", [b"a", b"b"], partitions=2)
    with made.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
    made.produce("t", [b"c"] * 12, partitions=2)
    made.forget("t", 0, 5)
    made.forget("t", 1, 3)
    yield made
    made.close()


def status(scene: Scene) -> TopicStatus:
    (found,) = pipeline_status(scene.config({"topic": "t"}))
    return found


def held(scene: Scene) -> list[tuple[int, int]]:
    origins = [row["_kafka"] for row in scene.rows("t")]
    return sorted((origin["partition"], origin["offset"]) for origin in origins)


def test_a_loss_fails_the_run_that_finds_it_and_no_other(scene: Scene) -> None:
    with scene.pipeline({"topic": "t"}) as pipeline:
        (report,) = pipeline.reports
        assert not pipeline.run_once()
        assert (report.failures, report.lost, report.rows) == ([LOST], 6, 6)
        pages = PipelinePages()
        pages.reports = pipeline.reports
        assert pages.unready() is None, "the table was filled"
        assert held(scene) == [(0, 0), (0, 5), (0, 6), (1, 0), (1, 3), (1, 4), (1, 5), (1, 6)]
        scene.produce("t", [b"d"] * 2, partitions=2)
        assert pipeline.run_once(), report.failures
        assert (report.failures, report.lost) == ([], 6)
    found = status(scene)
    assert (found.error, found.loss, found.lag_records) == (LOST, LOST, 0)
    assert found.error_ms == found.loss_ms
    assert found.error_ms is not None


def test_the_command_ends_with_1_once_and_status_goes_on_telling(
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"store: {scene.url}\ntopics: [{{topic: t}}]\n"
        f"catalog: {{folder: {tmp_path}/catalog, warehouse: {tmp_path}/lake}}\n"
    )
    monkeypatch.setattr(cli, "quiet_spark", lambda *_: contextlib.nullcontext(FakeSpark()))
    once = ["lake", "run", "-f", str(file), "--once"]
    assert main(once) == 1
    assert LOST in capfd.readouterr().err
    assert main(once) == 0
    assert main(["lake", "status", "-f", str(file)]) == 1
    assert f"{LOST} (since 20" in capfd.readouterr().out


def test_another_error_does_not_hide_a_loss_and_goes_when_it_is_mended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.pipeline({"topic": "t"}) as pipeline:
        pipeline.run_once()
        with contextlib.closing(pipeline_catalog(scene.config({"topic": "t"}))) as catalog:
            record_error(catalog.load_table("lake.t"), "the store is gone")
        error = status(scene).error
        assert error.startswith(f"{LOST} (found 20")
        assert error.endswith("; the store is gone")
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "topic", _raises)
            assert status(scene).error.startswith(LOST), "what is wrong now hides it neither"
        pipeline.run_once()
    assert status(scene).error == LOST


def _raises(*_: Any) -> Any:
    raise DamagedError("meta", "torn")


def test_the_commit_itself_writes_it_down(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = topic_module.commit_range

    def killed(*given: Any, **named: Any) -> Any:
        assert commit(*given, **named).in_table
        raise KeyboardInterrupt

    monkeypatch.setattr(topic_module, "commit_range", killed)
    with scene.pipeline({"topic": "t"}) as pipeline, pytest.raises(KeyboardInterrupt):
        pipeline.run_once()
    assert status(scene).error == LOST


def test_nothing_is_lost_or_counted_where_somebody_else_was_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = topic_module.commit_range

    def overtaken(table: Any, files: Any, expected: Any, new: Any, **named: Any) -> Any:
        commit(table, [], expected, new, letters=named["letters"])
        outcome = commit(table, files, expected, new, **named)
        assert outcome.kind is CommitKind.ALREADY
        return outcome

    monkeypatch.setattr(topic_module, "commit_range", overtaken)
    with scene.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
        report = pipeline.reports[0]
        assert (report.lost, report.rows, report.bad, report.commits) == (0, 0, 0, 0)
    assert status(scene).error == ""


# --- of partitions and topics that the table does not know yet


def lost_of(which: str, offsets: int) -> str:
    return (
        f"t: {offsets} offsets were removed by retention (or DeleteRecords) before they were "
        f"read into lake.t, which lacks them permanently: {which}"
    )


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Scene]:
    """A table that has all of its topic."""
    made = Scene(tmp_path)
    made.produce("t", [b"a"] * 5)
    with made.pipeline({"topic": "t"}) as pipeline:
        assert pipeline.run_once()
    yield made
    made.close()


def test_a_partition_that_was_added_and_expired_unread_is_a_loss(begun: Scene) -> None:
    begun.widen("t", 2)
    begun.produce("t", [b"b"] * 22, partitions=2)
    begun.forget("t", 1, 10)
    with begun.pipeline({"topic": "t"}) as pipeline:
        assert not pipeline.run_once()
        assert pipeline.reports[0].failures == [lost_of("0 to 9 of partition 1", 10)]
        assert pipeline.run_once(), "it is found once"
    assert (1, 10) in held(begun)
    assert status(begun).loss == lost_of("0 to 9 of partition 1", 10)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_that_was_made_again_and_expired_unread_is_a_loss(begun: Scene, start: str) -> None:
    begun.delete("t")
    begun.produce("t", [b"b"] * 6, partitions=2)
    begun.forget("t", 0, 3)
    begun.forget("t", 1, 1)
    with begun.pipeline({"topic": "t", "start": start}) as pipeline:
        assert not pipeline.run_once()
        (failure,) = pipeline.reports[0].failures
        assert failure == lost_of("0 to 2 of partition 0, 0 to 0 of partition 1", 4)
        assert (pipeline.reports[0].rows, pipeline.reports[0].lost) == (2, 4)


def test_a_topic_that_was_seen_empty_has_lost_what_was_removed_since(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        scene.produce("t", [])
        with scene.pipeline({"topic": "t"}) as pipeline:
            assert pipeline.run_once()
            scene.produce("t", [b"a"] * 3)
            scene.forget("t", 0, 2)
            assert not pipeline.run_once()
            assert pipeline.reports[0].failures == [lost_of("0 to 1 of partition 0", 2)]
    finally:
        scene.close()


def test_what_was_gone_before_a_table_began_is_no_loss(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        scene.produce("t", [b"a"] * 6, partitions=2)
        scene.forget("t", 1, 2)
        with scene.pipeline({"topic": "t"}) as pipeline:
            assert pipeline.run_once(), pipeline.reports
        assert held(scene) == [(0, 0), (0, 1), (0, 2), (1, 2)]
    finally:
        scene.close()


# --- in words


def plan(partition: int, start: int, lost: int) -> PartitionPlan:
    return PartitionPlan("t", "id", partition, start, start + 9, start, start + 9, lost=lost)


def at(**offsets: int) -> dict[str, TopicProgress]:
    known = {int(name.removeprefix("p")): offset for name, offset in offsets.items()}
    return {"id": TopicProgress("t", known)}


def test_a_partition_that_stands_still_has_lost_nothing_yet() -> None:
    torn = replace(plan(1, 20, 5), failure=DamagedError("x", "torn"))
    found = loss_of([plan(0, 10, 3), torn, plan(2, 7, 0)], at(p0=12, p2=7), "lake.t")
    assert found.offsets == 3
    assert found.text.endswith(": 7 to 9 of partition 0")
    assert not loss_of([plan(0, 10, 0)], at(p0=12), "lake.t").offsets


def test_many_partitions_do_not_make_it_long() -> None:
    count = 10_000
    new = at(**{f"p{number}": 2**40 for number in range(count)})
    found = loss_of([plan(number, 2**40, 2**39) for number in range(count)], new, "lake.t")
    assert found.offsets == count * 2**39
    assert found.text.endswith(f", and more of {count - PARTITIONS_SHOWN} other partitions")
    assert len(found.text) < TEXT_MAX


def test_offsets_that_were_given_up_are_lost_once_they_are_passed() -> None:
    given_up = replace(plan(0, 0, 0), skipped=((3, 6), (7, 25)))
    assert not loss_of([given_up], at(p0=3), "lake.t").offsets
    found = loss_of([given_up], at(p0=20), "lake.t")
    assert found.offsets == 3 + 13
    assert found.text == (
        "t: 16 offsets were given up for lost (`neve storage skip` or `neve cluster abandon-wal`) "
        "before they were read into lake.t, which lacks them permanently: 3 to 5 of partition 0, "
        "7 to 19 of partition 0"
    )
    both = loss_of([replace(given_up, lost=2, start=2)], at(p0=4), "lake.t")
    assert both.offsets == 2 + 1
    assert "retention" in both.text
    assert "3 to 3 of partition 0" in both.text


def test_a_loss_without_a_known_end_is_reported_and_not_counted() -> None:
    leapt = replace(plan(0, 0, 0), skipped=((3, 6),), open_losses=((6, 2**32),))
    assert "end not known" not in loss_of([leapt], at(p0=6), "lake.t").text
    found = loss_of([leapt], at(p0=2**32), "lake.t")
    assert found.offsets == 3
    assert found.text.endswith(
        "; t: records were lost with their WAL store (`neve cluster abandon-wal`) before they were "
        "read into lake.t, which lacks them permanently: from offset 6 of partition 0 on, end not "
        "known; the log continues at 4294967296"
    )


def test_a_table_that_had_read_further_reports_the_leap_and_misses_nothing(begun: Scene) -> None:
    # The table has offsets 0 to 4; the log leaps from 3 on, and nobody knows that it had 3 and 4.
    behind = 3 + OFFSETS_LEAPT
    begun.leap("t", 0, 3, behind)
    said = f"from offset 5 of partition 0 on, end not known; the log continues at {behind}"
    with begun.pipeline({"topic": "t"}) as pipeline:
        assert not pipeline.run_once()
        (report,) = pipeline.reports
        (failure,) = report.failures
        assert failure.endswith(said)
        assert (report.lost, report.rows, report.left) == (0, 0, 0)
        begun.produce("t", [b"new"] * 4)
        assert pipeline.run_once(), report.failures
    assert held(begun) == [*((0, at) for at in range(5)), *((0, behind + at) for at in range(4))]
    found = status(begun)
    assert found.loss.endswith(said)
    assert found.lag_records == 0
