"""Ends of a prefetch: closing, cancelled consumers, and a second iteration."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from neve import runtime
from neve.errors import ClosedError, InvalidError
from neve.log.downloads import (
    Download,
)
from neve.log.prefetch import PrefetchReader
from neve.settings import PrefetchSettings
from neve.store.port import Store
from support.prefetching import (
    downloads_of,
    live_tasks,
    names,
    simulated,
    store_of,
    unavailable,
    until_idle,
)

# --- closing


@simulated
async def test_closing_during_a_download_leaves_no_task_and_yields_nothing_more() -> None:
    store = store_of(30, latency=lambda: 10.0)
    reader = PrefetchReader(store, PrefetchSettings())
    iteration = reader.read(downloads_of(store))
    waiting = runtime.spawn(anext(iteration))  # type: ignore[arg-type]
    await runtime.sleep(1)
    assert store.in_flight == 8
    await reader.aclose()
    assert store.in_flight == 0
    assert runtime.monotonic() == 1.0
    with pytest.raises(ClosedError, match="its reader was closed"):
        await waiting
    with pytest.raises(ClosedError):
        await anext(iteration)
    with pytest.raises(ClosedError):
        reader.read([])
    assert not live_tasks()
    await reader.aclose()


@simulated
async def test_closing_waits_for_downloads_that_end_slowly() -> None:
    cleaned = []

    async def fetch(store: Store) -> bytes:
        try:
            return bytes(await store.get("object-000"))
        finally:
            await runtime.sleep(0.5)
            cleaned.append(True)

    store = store_of(1, latency=lambda: 10.0)
    reader = PrefetchReader(store, PrefetchSettings(downloads=3))
    reader.read([Download(key=str(n), size_bytes=1, fetch=fetch) for n in range(5)])
    await runtime.sleep(1)
    await reader.aclose()
    assert cleaned == [True] * 3
    assert not live_tasks()


@simulated
async def test_closing_while_the_consumer_falls_back() -> None:
    store = store_of(2)
    store.always["object-000"] = unavailable()
    reader = PrefetchReader(store, PrefetchSettings(retries=0))
    iteration = reader.read(downloads_of(store))
    await runtime.sleep(1)
    store.latency = lambda: 100.0
    waiting = runtime.spawn(anext(iteration))  # type: ignore[arg-type]
    await runtime.sleep(1)
    assert reader.counters.fallbacks == 1
    await reader.aclose()
    with pytest.raises(ClosedError):
        await waiting
    assert not live_tasks()


async def test_closing_in_real_time_leaves_no_file_and_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = store_of(30, size=10_000, latency=lambda: 0.03)
    store.faults["object-001"].append(unavailable())
    async with PrefetchReader(store, PrefetchSettings(retry_base_ms=5)) as reader:
        iteration = reader.read(downloads_of(store))
        for key in names(4):
            assert (await anext(iteration)).data == store.objects[key]
        assert store.in_flight > 0
    assert store.in_flight == 0
    assert not live_tasks()
    assert list(tmp_path.iterdir()) == []


@simulated
async def test_a_consumer_that_was_cancelled_while_it_waited_loses_nothing() -> None:
    store = store_of(4, latency=lambda: 0.1)
    store.faults["object-001"].extend(unavailable() for _ in range(6))
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads_of(store))
        found: list[str] = []
        for _ in range(1000):
            try:
                async with runtime.deadline(0.03):
                    found.append((await anext(iteration)).download.key)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        assert found == names(4)
    assert reader.counters.fallbacks == 1


@simulated
async def test_two_consumers_of_one_iteration_are_refused() -> None:
    store = store_of(4)
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads_of(store))
        one = runtime.spawn(anext(iteration))  # type: ignore[arg-type]
        await runtime.sleep(0)
        with pytest.raises(InvalidError, match="one consumer"):
            await anext(iteration)
        assert (await one).download.key == "object-000"


# --- a second iteration


@simulated
async def test_a_second_iteration_ends_the_first() -> None:
    store = store_of(30, latency=lambda: 0.2)
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        one = reader.read(downloads_of(store))
        for key in names(8):
            assert (await anext(one)).download.key == key
        waiting = runtime.spawn(anext(one))  # type: ignore[arg-type]
        await until_idle()
        two = reader.read(downloads_of(store))
        with pytest.raises(ClosedError, match="second iteration"):
            await waiting
        with pytest.raises(ClosedError, match="second iteration"):
            await anext(one)
        assert [item.download.key async for item in two] == names(30)
    assert store.in_flight_peak == 8
    assert not live_tasks()


@simulated
async def test_an_abandoned_iteration_releases_what_was_downloaded() -> None:
    store = store_of(4)
    async with PrefetchReader(store, PrefetchSettings(bytes=300)) as reader:
        for _ in range(3):
            abandoned = reader.read(downloads_of(store))
            await anext(abandoned)
            await runtime.sleep(1)
            assert reader.budget.used == 300, "the others have arrived, and are not consumed"
        async with runtime.deadline(1):
            found = [item.download.key async for item in reader.read(downloads_of(store))]
        assert found == names(4)
        assert reader.budget.used == 0
    assert reader.budget.peak == 300


@simulated
async def test_the_bounds_hold_across_iterations() -> None:
    async def fetch(store: Store) -> bytes:
        running.append(True)
        peak.append(len(running))
        try:
            return bytes(await store.get("object-000"))
        finally:
            await runtime.sleep(0.5)  # a download that takes its time to end
            running.pop()

    running: list[bool] = []
    peak: list[int] = []
    store = store_of(1, latency=lambda: 0.1)
    downloads = [Download(key=str(n), size_bytes=1, fetch=fetch) for n in range(9)]
    async with PrefetchReader(store, PrefetchSettings(downloads=3)) as reader:
        for _ in range(3):
            iteration = reader.read(downloads)
            await runtime.sleep(0.05)
        assert len([item async for item in iteration]) == 9
    assert max(peak) == 3


@simulated
async def test_the_list_that_was_cut_off_does_not_look_like_its_end() -> None:
    async def planned() -> AsyncIterator[Download[bytes]]:
        yield downloads_of(store)[0]
        await runtime.sleep(100)

    store = store_of(1)
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(planned())
        await anext(iteration)
        for task in live_tasks():
            task.cancel()
        with pytest.raises(ClosedError, match="was cancelled"):
            await anext(iteration)
