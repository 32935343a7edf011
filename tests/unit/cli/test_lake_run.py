"""`neve lake run` as a process: its lines, its HTTP port, its settings of Spark, its exit code."""

from __future__ import annotations

import contextlib
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from neve.cli import lake_run, main
from neve.errors import InvalidError
from neve.lake.pipeline.dead_letter_limit import DeadLetterLimit
from neve.serving.catalogue import PIPELINE
from unit.lake.pipeline.pipeline_scene import FakeSpark, Scene

STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")
ID = "{format: json, schema: {id: long}}"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(lake_run, "quiet_spark", lambda *_: contextlib.nullcontext(FakeSpark()))
    made = Scene(tmp_path)
    yield made
    made.close()


def run(scene: Scene, *flags: str, more: str = "") -> int:
    file = scene.folder / "pipeline.yaml"
    file.write_text(
        f"store: {scene.url}\ntopics: [{{topic: t, value: {ID}}}]\n{more}"
        f"catalog: {{folder: {scene.folder}/catalog, warehouse: {scene.folder}/lake}}\n"
    )
    return main(["lake", "run", "-f", str(file), *flags])


def until(monkeypatch: pytest.MonkeyPatch, passes: int, act: Callable[[], None]) -> None:
    """Stop a pipeline after so many of its looks at the topics; `act` just before."""

    class Stopped:
        def __init__(self) -> None:
            self._begun = 0

        def __call__(self) -> bool:
            self._begun += 1
            if self._begun == passes:
                act()
            return self._begun >= passes

    monkeypatch.setattr(lake_run, "_Stopped", Stopped)


# --- lines


def test_every_line_has_its_time_and_the_first_says_what_runs(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    scene.produce("t", [{"id": 1}, b"{", {"id": 2}])
    assert run(scene, "--once") == 0
    first, commit = capfd.readouterr().out.splitlines()
    assert STAMPED.match(first)
    assert "lake run: writes lake.t once, http off" in first
    assert STAMPED.sub("", commit) == "lake.t: 2 rows, 1 dead letters"


def test_what_goes_wrong_has_its_time_too(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    scene.produce("t", [{"id": 1}, {"id": 2}, {"id": 3}])
    assert run(scene, "--once") == 0
    scene.produce("t", [{"id": 4}] * 3)
    scene.forget("t", 0, 5)
    assert run(scene, "--once") == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert STAMPED.match(line)
    assert " ERROR neve.lake.pipeline.runner: t: 2 offsets were removed" in line


def test_spark_gets_the_settings_that_were_given(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def started(*asked: Any) -> Any:
        given.extend(asked)
        return contextlib.nullcontext(FakeSpark())

    monkeypatch.setattr(lake_run, "quiet_spark", started)
    scene.produce("t", [{"id": 1}])
    conf = (
        "--conf",
        "spark.executor.memory=4g",
        "--conf",
        "spark.driver.defaultJavaOptions=-Xss1m",
    )
    assert run(scene, "--once", "--master", "local[1]", *conf) == 0
    assert given[:2] == ["neve-lake", "local[1]"]
    assert given[2]["spark.executor.memory"] == "4g"
    assert given[2]["spark.driver.defaultJavaOptions"] == "-Xss1m", "what users want wins"
    assert run(scene, "--once", "--conf", "spark.executor.memory") == 2


# --- the HTTP port


def answer(capfd: pytest.CaptureFixture[str], pages: dict[str, tuple[int, str]]) -> None:
    (address,) = re.findall(r"http (127\.0\.0\.1:\d+)", capfd.readouterr().out)
    for path in ("/healthz", "/readyz", "/metrics"):
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as found:
                pages[path] = found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            pages[path] = error.code, error.read().decode()


def test_health_and_metrics_are_served_beside_the_pipeline(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scene.produce("t", [{"id": 1}, b"{", {"id": 2}])
    pages: dict[str, tuple[int, str]] = {}
    until(monkeypatch, 3, lambda: answer(capfd, pages))
    assert run(scene, "--http", "127.0.0.1:0", "--interval", "1ms") == 0
    assert pages["/healthz"] == (200, "ok\n")
    assert pages["/readyz"] == (200, "ready\n")
    families = {each.name: each for each in text_string_to_metric_families(pages["/metrics"][1])}
    assert set(families) == {name.removesuffix("_total") for name in PIPELINE}
    values = {sample.name: sample.value for each in families.values() for sample in each.samples}
    assert values["neve_lake_rows_total"] == 2
    assert values["neve_lake_dead_letters_total"] == 1
    assert (values["neve_lake_lag_offsets"], values["neve_lake_failing"]) == (0, 0)
    assert values["neve_lake_last_commit_timestamp_seconds"] > 1_700_000_000


def test_a_pipeline_that_fails_is_not_ready_and_knows_no_lag(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pages: dict[str, tuple[int, str]] = {}
    until(monkeypatch, 3, lambda: answer(capfd, pages))
    assert run(scene, "--http", "127.0.0.1:0", "--interval", "1ms") == 0
    code, reason = pages["/readyz"]
    assert (code, "'t'" in reason) == (503, True)
    assert 'neve_lake_failing{topic="t",table="lake.t"} 1' in pages["/metrics"][1]
    assert "neve_lake_lag_offsets{" not in pages["/metrics"][1]


def test_a_port_that_is_taken_is_told_before_spark_starts(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(scene, "--once", "--http", "nowhere") == 1
    assert "is not host:port" in capfd.readouterr().err


# --- too many dead letters


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 1),
        (("--max-dead-letters", "100%"), 0),
        (("--max-dead-letters", "19"), 0),
        (("--max-dead-letters", "18"), 1),
    ],
)
def test_a_run_that_puts_nearly_all_aside_fails(
    scene: Scene, flags: tuple[str, ...], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    scene.produce("t", [{"id": 1}, *[{"id": "no number"}] * 19])
    assert run(scene, "--once", *flags) == code
    told = capfd.readouterr().err
    assert ("19 of 20 values did not fit" in told) == bool(code)
    assert run(scene, "--once", *flags) == 0, "there was nothing more to read"


def test_a_pipeline_that_goes_on_stops_only_by_a_limit_that_was_given(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scene.produce("t", [{"id": "no number"}] * lake_run.VALUES_LEAST)
    until(monkeypatch, 6, lambda: None)
    assert run(scene, "--interval", "1ms") == 0
    assert capfd.readouterr().err.count("values did not fit") == 1, "once, and not at each step"
    scene.produce("t", [{"id": "no number"}] * lake_run.VALUES_LEAST)
    until(monkeypatch, 1_000, lambda: None)
    assert run(scene, "--interval", "1ms", "--max-dead-letters", "5%") == 1
    assert "more than 5%" in capfd.readouterr().err


def test_a_share_is_not_told_of_too_few_values() -> None:
    limit = DeadLetterLimit.parse("50%")
    assert limit.exceeded(0, 1)
    assert not limit.exceeded(0, 1, values_least=2)
    assert not limit.exceeded(1, 1)
    assert not limit.exceeded(0, 0)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "%"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="is not a limit"):
        DeadLetterLimit.parse(text)
