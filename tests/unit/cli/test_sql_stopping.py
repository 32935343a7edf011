"""Ctrl-C while a statement runs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from neve.cli import sql_stopping


def test_a_stop_that_came_too_early_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_stopping, "_AGAIN_SECONDS", 0.01)
    stops: list[int] = []
    heard = threading.Event()

    def stop() -> None:
        stops.append(1)
        if len(stops) == 2:
            heard.set()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert heard.wait(60)
        raise RuntimeError("the job was cancelled")

    with pytest.raises(KeyboardInterrupt):
        sql_stopping.run_stoppable(work, stop)
    assert len(stops) >= 2


def test_work_that_nobody_stops_just_ends() -> None:
    done: list[int] = []
    sql_stopping.run_stoppable(lambda: done.append(1), lambda: done.append(2))
    assert done == [1]
