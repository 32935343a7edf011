"""Log lines: their formats, what of an error they show, and what is not repeated."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from neve import runtime
from neve.errors import InvalidError
from neve.serving import logs
from neve.settings import LogSettings

LOGGER = logging.getLogger("neve.sample")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, asyncio_log = logging.getLogger(), logging.getLogger("asyncio")
    before = (list(root.handlers), root.level, asyncio_log.level, logging.raiseExceptions)
    yield
    root.handlers[:], root.level, asyncio_log.level, logging.raiseExceptions = before
    root.manager._clear_cache()  # type: ignore[attr-defined]


def written(settings: LogSettings) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(settings, stream)
    return stream


def test_a_line_of_text_has_time_level_logger_and_message() -> None:
    stream = written(LogSettings())
    LOGGER.info("started on %s", "port 1")
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO neve\.sample: started on port 1\n"
    assert re.fullmatch(pattern, stream.getvalue())


def test_a_line_of_json_is_one_object() -> None:
    stream = written(LogSettings(format="json"))
    LOGGER.warning("two\nlines and \x1b a café")
    told = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning",
        "logger": "neve.sample",
        "message": "two lines and \x1b a café",
    }


def test_a_message_of_a_client_makes_no_second_line() -> None:
    stream = written(LogSettings())
    LOGGER.warning("topic %s", "a\n2026-01-01T00:00:00.000Z INFO neve: all is well\r\nb")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_lines_below_the_level_are_left_out(level: str, count: int) -> None:
    stream = written(LogSettings(level=level))
    for write in (LOGGER.debug, LOGGER.info, LOGGER.warning, LOGGER.error):
        write("line")
    assert len(stream.getvalue().splitlines()) == count


def log_failure(failure: Exception) -> None:
    try:
        raise failure
    except Exception as error:
        LOGGER.error("it failed", exc_info=error)


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_on_purpose_is_told_in_one_line(form: str) -> None:
    stream = written(LogSettings(format=form))
    log_failure(InvalidError("the name is wrong: use another"))
    assert "it failed: the name is wrong: use another" in stream.getvalue()
    assert "Traceback" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_mistake_and_whatever_is_debugged_keep_their_traceback(form: str) -> None:
    stream = written(LogSettings(format=form))
    log_failure(KeyError("x"))
    assert "Traceback" in stream.getvalue()
    stream = written(LogSettings(format=form, level="debug"))
    log_failure(InvalidError("wrong"))
    assert "Traceback" in stream.getvalue()


def test_configuring_again_replaces() -> None:
    first = written(LogSettings())
    second = written(LogSettings())
    LOGGER.info("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)


def test_a_log_nobody_reads_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    stream = written(LogSettings())
    stream.close()
    LOGGER.error("unheard")
    assert capsys.readouterr().err == ""


# --- repeated lines


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_complaint_is_written_once_in_a_while_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        repeated = logs.Repeated(LOGGER, LogSettings(repeat_ms=10_000))
        for _ in range(5):
            repeated.warning("10.0.0.1", "frame", "a bad frame")
        repeated.warning("10.0.0.2", "frame", "a bad frame")
        repeated.warning("10.0.0.1", "refused", "too many connections")
        await runtime.sleep(10)
        repeated.warning("10.0.0.1", "frame", "a bad frame")
        await runtime.sleep(10)
        repeated.warning("10.0.0.1", "frame", "a bad frame")

    runtime.simulate(scenario(), seed=1)
    assert messages(caplog) == [
        "10.0.0.1: a bad frame",
        "10.0.0.1: too many connections",
        "10.0.0.1: a bad frame (and 5 more like it)",
        "10.0.0.1: a bad frame",
    ]


def test_what_is_remembered_is_bounded_and_the_busy_stay(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SUBJECTS_REMEMBERED_MAX", 3)
    repeated = logs.Repeated(LOGGER, LogSettings())
    for number in range(50):
        repeated.warning("10.0.0.1", "busy", "again")
        repeated.warning("10.0.0.1", f"subject {number}", "once")
    assert len(repeated._seen) == 3
    assert messages(caplog).count("10.0.0.1: again") == 1


async def test_failures_to_accept_are_written_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    logs.Repeated(LOGGER, LogSettings()).log_accept_failures(loop)
    for _ in range(5):
        loop.call_exception_handler(
            {"message": "accept", "exception": OSError(errno.EMFILE, "too many")}
        )
    assert messages(caplog) == ["a client: cannot accept its connection: Too many open files"]
    loop.call_exception_handler({"message": "a mistake", "exception": ValueError("x")})
    assert "a mistake" in messages(caplog)[1]


# --- events


def test_an_event_has_its_fields_as_text_and_as_json() -> None:
    stream = written(LogSettings())
    about = {"topic": "orders", "group": 'two "words"\n', "seconds": 0.25, "configs": {"a": "1"}}
    logs.event(LOGGER, logging.INFO, "it happened", **about)
    told = stream.getvalue().partition("neve.sample: ")[2]
    assert told == (
        'it happened topic=orders group="two \\"words\\"\\n" seconds=0.25 configs={"a": "1"}\n'
    )
    stream = written(LogSettings(format="json"))
    logs.event(LOGGER, logging.INFO, "it happened", **about)
    found = json.loads(stream.getvalue())
    assert found["message"] == "it happened"
    assert {name: found[name] for name in about} == about


def test_a_long_field_is_cut() -> None:
    stream = written(LogSettings(format="json"))
    logs.event(LOGGER, logging.INFO, "it happened", group="g" * 10_000)
    assert json.loads(stream.getvalue())["group"] == "g" * logs.FIELD_CHARACTERS_MAX


@pytest.mark.parametrize(("level", "most"), [("info", logs.EVENTS_MAX), ("warning", 1)])
def test_of_one_kind_of_event_so_many_lines_are_written_in_a_while(level: str, most: int) -> None:
    stream = written(LogSettings(format="json", repeat_ms=10_000))
    number = logging.getLevelNamesMapping()[level.upper()]

    async def scenario() -> None:
        for at in range(most + 7):
            logs.event(LOGGER, number, "it happened", at=at)
        logs.event(LOGGER, number, "another", at=0)
        await runtime.sleep(10)
        logs.event(LOGGER, number, "it happened", at=-1)
        logs.event(LOGGER, number, "another", at=-1)

    runtime.simulate(scenario(), seed=1)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    first, second = (
        [row for row in told if row["message"] == kind] for kind in ("it happened", "another")
    )
    assert [row["at"] for row in first] == [*range(most), -1]
    assert [row.get("left_out") for row in first] == [None] * most + [7]
    assert [row.get("left_out") for row in second] == [None, None]
