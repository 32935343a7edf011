"""Calls that hang come to an end."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import NotFoundError, UnavailableError
from neve.store.faults import Fault, FaultyStore, Rule
from neve.store.latency import Timeout
from neve.store.memory import MemoryStore


def test_a_call_that_hangs_fails_in_a_passing_way() -> None:
    async def scenario() -> None:
        faulty = FaultyStore(MemoryStore(), script=[Rule(Fault.HANGS, times=2)])
        store = Timeout(faulty, 30_000)
        for work in (store.create("k", b"x"), store.get("k")):
            started = runtime.monotonic()
            with pytest.raises(UnavailableError, match=r"k: .* longer than 30000 ms"):
                await work
            assert runtime.monotonic() - started == pytest.approx(30)
        with pytest.raises(NotFoundError):
            await store.get("k")

    runtime.simulate(scenario(), seed=1)
