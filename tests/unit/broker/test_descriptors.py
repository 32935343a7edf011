"""Clients leave the store and the HTTP port the descriptors that these need."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from neve.broker.descriptors import connections_allowed, reserved_descriptors
from neve.settings import Settings

RESERVED = reserved_descriptors(Settings())
WANTED = Settings().broker.connections_max


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The soft and the hard limit of a process; those that are set are appended."""
    known = [(1024, 4096)]

    def change(_: int, limit: tuple[int, int]) -> None:
        if limit[0] > limit[1] != resource.RLIM_INFINITY:
            raise ValueError("above the hard limit")
        known.append(limit)

    monkeypatch.setattr(resource, "getrlimit", lambda _: known[-1])
    monkeypatch.setattr(resource, "setrlimit", change)
    return known


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 1_000_000])
def test_the_soft_limit_is_raised_to_what_is_needed(
    limits: list[tuple[int, int]], hard: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits[0] = (1024, hard)
    assert connections_allowed(Settings()) == WANTED
    assert limits[-1] == (WANTED + RESERVED, hard)
    assert not caplog.records


def test_a_limit_that_is_high_enough_stays(limits: list[tuple[int, int]]) -> None:
    limits[0] = (100_000, 100_000)
    assert connections_allowed(Settings()) == WANTED
    assert limits == [(100_000, 100_000)]


def test_fewer_are_accepted_where_the_hard_limit_is_too_low(
    limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    assert connections_allowed(Settings()) == 4096 - RESERVED
    assert limits[-1] == (4096, 4096)
    (record,) = caplog.records
    assert f"it accepts {4096 - RESERVED} connections" in record.getMessage()
    assert f"Raise the limit to {WANTED + RESERVED}" in record.getMessage()


def test_some_are_accepted_however_low_the_limit_is(limits: list[tuple[int, int]]) -> None:
    limits[0] = (64, 64)
    assert connections_allowed(Settings()) == 32


def test_what_is_kept_follows_the_store_and_http() -> None:
    settings = Settings()
    more = replace(settings, store=replace(settings.store, concurrency_max=164))
    assert reserved_descriptors(more) == RESERVED + 200
    ungated = replace(settings, store=replace(settings.store, concurrency_max=0))
    assert reserved_descriptors(ungated) > RESERVED
