"""Brokers that watch each other: the live are never found dead, and the dead always, in time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve import runtime
from neve.cluster.liveness.detector import Reason
from neve.cluster.liveness.watchers import watchers_of
from support.liveness_world import (
    HOP_SECONDS,
    TIMING,
    Cut,
    End,
    Found,
    Outage,
    Partition,
    Pause,
    World,
)

WATCHED = 1
HORIZON_SECONDS = 60.0
INTERVAL, SESSION, GRACE = TIMING.interval_seconds, TIMING.session_seconds, TIMING.grace_seconds
# What a process may take beyond the formula: a few hops of the network.
SLACK_SECONDS = 10 * HOP_SECONDS

times = st.floats(0.0, HORIZON_SECONDS, allow_nan=False)
durations = st.floats(0.1, 40.0, allow_nan=False)
look_seconds = st.sampled_from([0.01, 0.3, 0.9, 1.5])
seeds = st.integers(0, 2**32)


def dead_within(look: float, *, counted: float = SESSION, doubts: int = 0) -> float:
    """The bound of docs/contributors/cluster.md, for an observer that is never late."""
    gaps = math.ceil(counted / INTERVAL)
    step = max(INTERVAL, look)
    doubted = doubts * (math.ceil(SESSION / INTERVAL) * step + look)
    return INTERVAL + (gaps + 1) * step + 2 * look + doubted + SLACK_SECONDS


@st.composite
def faults(draw: st.DrawFn, others: Sequence[int]) -> dict[str, object]:
    """Faults that leave the watched process running and able to reach the store if any can."""
    spans = st.tuples(times, durations)
    pauses = draw(st.lists(st.tuples(st.sampled_from(others), spans), max_size=4))
    cuts = st.tuples(st.sampled_from(others), st.sampled_from(Cut), spans)
    partitions = draw(st.lists(cuts, max_size=4))
    outages = draw(st.lists(st.tuples(spans, st.booleans()), max_size=3))
    return {
        "pauses": [Pause(who, at, at + long) for who, (at, long) in pauses],
        "partitions": [
            Partition(source, WATCHED, at, at + long, what)
            for source, what, (at, long) in partitions
        ],
        "outages": [Outage(at, at + long, hangs) for (at, long), hangs in outages],
        "look_seconds": draw(look_seconds),
    }


@settings(deadline=None, max_examples=150)
@given(st.integers(2, 5), st.data(), seeds)
def test_a_live_process_is_never_found_dead(count: int, data: st.DataObject, seed: int) -> None:
    """Whatever befalls its observers, the network between them, and the store for all of them."""
    others = range(2, count + 1)
    joins = data.draw(st.lists(times, max_size=2), label="joins")
    leaves = data.draw(st.lists(st.tuples(st.sampled_from(others), times), max_size=1))
    drawn = data.draw(faults([*others, *range(10, 10 + len(joins))]), label="faults")
    changes = [(at, 10 + row, True) for row, at in enumerate(joins)]
    changes += [(at, leaver, False) for leaver, at in leaves]

    async def scenario() -> dict[int, Found]:
        world = World(**drawn)  # type: ignore[arg-type]
        await world.start(WATCHED, *others)
        for at, incarnation, joining in sorted(changes):
            await runtime.sleep(at - runtime.monotonic())
            await (world.start(incarnation) if joining else world.leave(incarnation))
        await runtime.sleep(HORIZON_SECONDS + 30.0 - runtime.monotonic())
        await world.close()
        return world.found_dead(WATCHED)

    assert runtime.simulate(scenario(), seed=seed) == {}


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 4), st.data(), seeds)
def test_a_live_process_without_an_address_is_never_found_dead(
    count: int, data: st.DataObject, seed: int
) -> None:
    others = range(2, count + 1)
    drawn = data.draw(faults(others), label="faults")

    async def scenario() -> dict[int, Found]:
        world = World(**drawn)  # type: ignore[arg-type]
        await world.start(*others)
        await world.start(WATCHED, port=0)
        await runtime.sleep(HORIZON_SECONDS + 30.0)
        await world.close()
        return world.found_dead(WATCHED)

    assert runtime.simulate(scenario(), seed=seed) == {}


async def ended_at(
    world: World, count: int, at: float, how: End, port: int = 9092
) -> tuple[float, set[int]]:
    """End the watched process, and run until all must know. When it ended, and its observers."""
    await world.start(WATCHED, port=port)
    await world.start(*range(2, count + 1))
    await runtime.sleep(at)
    await world.end(WATCHED, how)
    ended = runtime.monotonic()
    await runtime.sleep(90.0)
    await world.close()
    watchers = watchers_of(world.brokers[WATCHED], world.brokers.values(), world.watchers)
    return ended, {row.incarnation for row in watchers}


@settings(deadline=None, max_examples=100)
@given(
    st.integers(2, 6),
    st.floats(12.0, 20.0),
    st.sampled_from(End),
    st.sets(st.integers(2, 6), max_size=5),
    st.sampled_from([0.0, 8.0]),
    look_seconds,
    seeds,
)
def test_a_process_that_ends_is_found_dead_in_time_by_all_its_observers(
    count: int,
    at: float,
    how: End,
    cut_off: set[int],
    cut_from: float,
    look: float,
    seed: int,
) -> None:
    """Also by those that could not ping it: they saw its heartbeats until it ended."""
    rows = [Partition(each, WATCHED, cut_from, 1e9) for each in sorted(cut_off)]

    async def scenario() -> None:
        world = World(look_seconds=look, partitions=rows)
        ended, observers = await ended_at(world, count, at, how)
        found = world.found_dead(WATCHED)
        assert set(found) == observers
        for observer, row in found.items():
            never_answered = WATCHED not in world.processes[observer].answered
            counted = SESSION + GRACE if never_answered else SESSION
            bound = dead_within(look, counted=counted, doubts=int(count == 2))
            assert ended < row.at <= ended + bound

    runtime.simulate(scenario(), seed=seed)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 4), st.floats(6.0, 12.0), look_seconds, seeds)
def test_a_process_without_an_address_is_found_dead_in_time(
    count: int, at: float, look: float, seed: int
) -> None:
    async def scenario() -> None:
        ended, observers = await ended_at(
            world := World(look_seconds=look), count, at, End.PROCESS, port=0
        )
        bound = dead_within(look, counted=SESSION + GRACE, doubts=1)
        found = world.found_dead(WATCHED)
        assert set(found) == observers
        assert all(ended < row.at <= ended + bound for row in found.values())

    runtime.simulate(scenario(), seed=seed)


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 7), st.floats(6.0, 8.0), seeds)
def test_a_process_whose_port_is_closed_is_found_dead_at_the_next_ping(
    count: int, at: float, seed: int
) -> None:
    async def scenario() -> None:
        ended, observers = await ended_at(world := World(), count, at, End.PROCESS)
        found = world.found_dead(WATCHED)
        assert set(found) == observers
        assert {row.reason for row in found.values()} == {Reason.REFUSED}
        assert all(row.at <= ended + INTERVAL + SLACK_SECONDS for row in found.values())

    runtime.simulate(scenario(), seed=seed)


@settings(deadline=None, max_examples=30)
@given(st.floats(6.0, 8.0), seeds)
def test_without_a_second_watcher_a_closed_port_is_only_silence(at: float, seed: int) -> None:
    async def scenario() -> None:
        rows = [Partition(each, WATCHED, 5.5, 1e9) for each in (3, 4)]
        ended, _ = await ended_at(world := World(partitions=rows), 4, at, End.PROCESS)
        row = world.found_dead(WATCHED)[2]
        assert row.reason is Reason.SILENT
        assert row.at > ended + SESSION - INTERVAL

    runtime.simulate(scenario(), seed=seed)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(End), st.floats(6.0, 8.0), look_seconds, seeds)
def test_if_all_others_end_at_once_the_last_one_doubts_once(
    how: End, at: float, look: float, seed: int
) -> None:
    async def scenario() -> None:
        world = World(look_seconds=look)
        await world.start(1, 2, 3, 4)
        await runtime.sleep(at)
        for each in (1, 2, 3):
            await world.end(each, how)
        ended = runtime.monotonic()
        await runtime.sleep(60.0)
        await world.close()
        for each in (1, 2, 3):
            row = world.found_dead(each)[4]
            assert row.reason is Reason.SILENT
            assert (
                ended + 2 * SESSION - 3 * INTERVAL < row.at <= ended + dead_within(look, doubts=1)
            )

    runtime.simulate(scenario(), seed=seed)


@pytest.mark.parametrize("count", range(1, 8))
def test_while_all_is_well_the_store_gets_no_request(count: int) -> None:
    async def scenario() -> None:
        world = World()
        await world.start(*range(1, count + 1))
        await runtime.sleep(10.0)
        settled_at = runtime.monotonic()
        await runtime.sleep(600.0)
        await world.close()
        assert [call for call in world.calls if call[0] > settled_at] == []
        assert world.found == []
        assert count > 1 or world.calls == []

    runtime.simulate(scenario(), seed=count)


def test_an_observer_alone_costs_one_write_and_one_read_an_interval_while_it_is_cut_off() -> None:
    async def scenario() -> None:
        world = World(partitions=[Partition(2, WATCHED, 20.0, 80.0)])
        await world.start(1, 2, 3, 4)
        await runtime.sleep(100.0)
        await world.close()
        for operation in ("get", "put"):
            assert 50 <= world.requests(operation, since=15.0) <= 65
        assert world.found == []

    runtime.simulate(scenario(), seed=1)


def test_a_store_that_is_down_for_an_hour_kills_no_one() -> None:
    """Not even if no ping arrives anywhere, for as long."""

    async def scenario(hangs: bool) -> list[Found]:
        every = (1, 2, 3, 4)
        rows = [Partition(a, b, 20.0, 3_620.0) for a in every for b in every if a != b]
        world = World(partitions=rows, outages=[Outage(25.0, 3_600.0, hangs)])
        await world.start(*every)
        await runtime.sleep(3_700.0)
        await world.close()
        return world.found

    for hangs in (False, True):
        assert runtime.simulate(scenario(hangs), seed=1) == []
