"""Syncs of a folder that are asked for at once are one sync, which began after all of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neve.store import durable
from neve.store.durable import Durable

ASKED = 24


class Syncs:
    """Stands in for the system's sync: slow, and failing where told."""

    def __init__(self, failing: frozenset[int] = frozenset()) -> None:
        self.begun: list[float] = []
        self._failing = failing
        self._lock = threading.Lock()

    def __call__(self, _: Path) -> None:
        with self._lock:
            self.begun.append(time.perf_counter())
            number = len(self.begun)
        time.sleep(0.02)
        if number in self._failing:
            raise OSError(5, "the disk is broken")


def ask(folder: Path, count: int) -> list[tuple[float, BaseException | None]]:
    """Ask for so many syncs at once; when each was asked for, and what came of it."""
    known = Durable(folder.parent)
    known._folders.add(folder)

    def one(_: int) -> tuple[float, BaseException | None]:
        asked = time.perf_counter()
        try:
            known.sync(folder)
        except OSError as error:
            return asked, error
        return asked, None

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_many_share_a_sync_that_began_after_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs()
    monkeypatch.setattr(durable, "sync_folder", syncs)
    told = ask(tmp_path / "f", ASKED)
    assert all(error is None for _, error in told)
    assert len(syncs.begun) <= ASKED / 2
    assert max(asked for asked, _ in told) <= max(syncs.begun)


def test_a_failed_sync_fails_its_own_caller_and_the_others_try_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(failing=frozenset({1, 2}))
    monkeypatch.setattr(durable, "sync_folder", syncs)
    told = ask(tmp_path / "f", ASKED)
    assert sum(error is not None for _, error in told) == 2
    assert len(syncs.begun) >= 3


def test_one_after_the_other_each_has_a_sync_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs()
    monkeypatch.setattr(durable, "sync_folder", syncs)
    known = Durable(tmp_path)
    for _ in range(3):
        known.sync(tmp_path)
    assert len(syncs.begun) == 3
