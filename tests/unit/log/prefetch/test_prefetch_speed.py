"""Prefetch measured against a serial loop, in real and in virtual time."""

from __future__ import annotations

import math
import statistics

import pytest

from neve import runtime
from neve.log.prefetch import PrefetchReader
from neve.settings import PrefetchSettings
from support.prefetching import (
    downloads_of,
    names,
    read_all,
    store_of,
)


async def test_reading_ahead_in_real_time_beats_the_serial_loop() -> None:
    store = store_of(24, latency=lambda: 0.02)
    ratios = []
    for _ in range(3):  # other processes may take the machine for a while
        start = runtime.monotonic()
        for key in names(24):
            await store.get(key)
        serial = runtime.monotonic() - start
        start = runtime.monotonic()
        async with PrefetchReader(store, PrefetchSettings(window=16, downloads=8)) as reader:
            assert await read_all(reader, downloads_of(store)) == list(store.objects.values())
        ratios.append((runtime.monotonic() - start) / serial)
    assert min(ratios) < 0.5


OBJECTS = 32


GET_MEDIAN_SECONDS = 0.010


GET_P99_SECONDS = 0.100


SIGMA = math.log(GET_P99_SECONDS / GET_MEDIAN_SECONDS) / statistics.NormalDist().inv_cdf(0.99)


async def recovery_ratio(chosen: PrefetchSettings) -> float:
    """Seconds to read all objects ahead, over the seconds that one after the other takes."""

    def latency() -> float:
        return runtime.chance().lognormvariate(math.log(GET_MEDIAN_SECONDS), SIGMA)

    store = store_of(OBJECTS, latency=latency)
    start = runtime.monotonic()
    for key in names(OBJECTS):
        await store.get(key)
    serial = runtime.monotonic() - start
    start = runtime.monotonic()
    async with PrefetchReader(store, chosen) as reader:
        assert len(await read_all(reader, downloads_of(store))) == OBJECTS
    return (runtime.monotonic() - start) / serial


@pytest.mark.parametrize(("window", "downloads", "bound"), [(4, 3, 0.52), (16, 8, 0.28)])
def test_recovery_against_the_serial_loop(window: int, downloads: int, bound: float) -> None:
    chosen = PrefetchSettings(window=window, downloads=downloads)
    ratios = [runtime.simulate(recovery_ratio(chosen), seed=seed) for seed in range(100)]
    assert statistics.median(ratios) <= bound


def test_a_simulated_run_replays_exactly() -> None:
    chosen = PrefetchSettings()
    assert runtime.simulate(recovery_ratio(chosen), seed=7) == runtime.simulate(
        recovery_ratio(chosen), seed=7
    )
