"""Syncs of a folder: those asked for at once are one, and one that fails ends the store."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neve.errors import StoreFailedError
from neve.store.durable import Durable

ASKED = 24


class Syncs:
    """Stands in for the system's sync: slow, and failing where asked to."""

    def __init__(self, failing: frozenset[int] = frozenset()) -> None:
        self.begun: list[float] = []
        self._failing = failing
        self._lock = threading.Lock()

    def __call__(self, _: int) -> None:
        with self._lock:
            self.begun.append(time.perf_counter())
            number = len(self.begun)
        time.sleep(0.02)
        if number in self._failing:
            raise OSError(5, "the disk is broken")


def known_in(root: Path) -> Durable:
    """What is known of a folder whose own name, and those above, are synced already."""
    known = Durable(root, root / "failed")
    known._folders.add(root)
    return known


def ask(known: Durable, folder: Path, count: int) -> list[tuple[float, BaseException | None]]:
    """Ask for so many syncs at once; when each was asked for, and what came of it."""

    def one(_: int) -> tuple[float, BaseException | None]:
        asked = time.perf_counter()
        try:
            known.sync(folder)
        except StoreFailedError as error:
            return asked, error
        return asked, None

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_many_share_a_sync_that_began_after_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs()
    monkeypatch.setattr(os, "fsync", syncs)
    told = ask(known_in(tmp_path), tmp_path, ASKED)
    assert all(error is None for _, error in told)
    assert len(syncs.begun) <= ASKED / 2
    assert max(asked for asked, _ in told) <= max(syncs.begun)


def test_a_failed_sync_fails_all_who_ask_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(failing=frozenset({1}))
    monkeypatch.setattr(os, "fsync", syncs)
    known = known_in(tmp_path)
    assert all(error is not None for _, error in ask(known, tmp_path, ASKED))
    assert len(syncs.begun) == 1
    with pytest.raises(StoreFailedError, match=f"remove {known.mark}"):
        known_in(tmp_path).sync(tmp_path)  # as another process would
    known.mark.unlink()
    with pytest.raises(StoreFailedError):
        known.sync(tmp_path)
    known_in(tmp_path).sync(tmp_path)
    assert len(syncs.begun) == 2


def test_one_after_the_other_each_has_a_sync_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs()
    monkeypatch.setattr(os, "fsync", syncs)
    known = known_in(tmp_path)
    for _ in range(3):
        known.sync(tmp_path)
    assert len(syncs.begun) == 3
