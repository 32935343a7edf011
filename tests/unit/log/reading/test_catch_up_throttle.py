"""Those who lag are served at a pace while others are served as well, and only then."""

from __future__ import annotations

import dataclasses

import pytest

from neve import runtime
from neve.log.reading.leader.catch_up_throttle import (
    PAUSE_SECONDS_MAX,
    WINDOW_SECONDS,
    CatchUpThrottle,
)
from neve.runtime.context import world
from support.scripted_store import in_simulation


class Machine:
    """A processor whose use the test tells, and work that it counts."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.work = 0
        world.set(dataclasses.replace(world.get(), cpu=lambda: self.cpu))

    async def run(
        self, pace: CatchUpThrottle, seconds: float, load: float, work: int
    ) -> list[float]:
        """So much time, in steps of a millisecond; the pauses that were asked for."""
        pauses = []
        for _ in range(round(seconds * 1_000)):
            self.cpu += load / 1_000
            self.work += work
            pauses.append(pace.pause_seconds())
            await runtime.sleep(0.001)
        return pauses


@in_simulation
async def test_nobody_waits_while_nobody_else_is_there() -> None:
    machine = Machine()
    pace = CatchUpThrottle(lambda: machine.work, 0.5)
    assert not any(await machine.run(pace, 1, load=1, work=0))


@in_simulation
async def test_a_share_is_kept_to_beside_others() -> None:
    machine = Machine()
    pace = CatchUpThrottle(lambda: machine.work, 0.5)
    await machine.run(pace, 2 * WINDOW_SECONDS, load=0.1, work=1)
    assert not any(await machine.run(pace, 1, load=0.45, work=1))
    pauses = await machine.run(pace, 1, load=1, work=1)
    assert sum(map(bool, pauses)) > len(pauses) * 0.8
    assert max(pauses) == pytest.approx(PAUSE_SECONDS_MAX)


@in_simulation
async def test_when_the_others_are_gone_the_pace_is_over() -> None:
    machine = Machine()
    pace = CatchUpThrottle(lambda: machine.work, 0.5)
    await machine.run(pace, 1, load=1, work=1)
    await machine.run(pace, 2 * WINDOW_SECONDS, load=1, work=0)
    assert not any(await machine.run(pace, 1, load=1, work=0))


@in_simulation
async def test_a_turn_comes_however_busy_the_process_is() -> None:
    machine = Machine()
    pace = CatchUpThrottle(lambda: machine.work, 0.1)
    await machine.run(pace, 1, load=4, work=1)
    before = runtime.monotonic()
    for _ in range(10):
        await pace.turn()
    assert runtime.monotonic() - before <= 10 * PAUSE_SECONDS_MAX + 0.001
    assert pace.pauses > 0


@in_simulation
async def test_a_share_of_nothing_is_no_bound() -> None:
    machine = Machine()
    pace = CatchUpThrottle(lambda: machine.work, 0)
    assert not any(await machine.run(pace, 1, load=4, work=1))
