"""Downloads that fail: the fallback when the consumer reaches them, and permanent failure."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import ClosedError, UnavailableError
from neve.log.downloads import (
    Download,
    whole_object,
)
from neve.log.prefetch import PrefetchReader
from neve.settings import PrefetchSettings
from neve.store.gate import Gate
from neve.store.port import Store
from support.prefetching import (
    downloads_of,
    live_tasks,
    names,
    read_all,
    simulated,
    store_of,
    unavailable,
)

# --- fallback


@simulated
async def test_a_failed_download_falls_back_when_the_consumer_reaches_it() -> None:
    store = store_of(6)
    store.faults["object-003"].extend(unavailable() for _ in range(6))
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads_of(store))
        for _ in range(3):
            await anext(iteration)
        await runtime.sleep(60)
        assert store.count_key("object-003") == 6  # given up, until it is asked for
        assert (await anext(iteration)).data == store.objects["object-003"]
        assert [item.download.key async for item in iteration] == names(6)[4:]
    assert (reader.counters.fallbacks, reader.counters.retries) == (1, 5)
    assert store.count_key("object-003") == 7


@simulated
async def test_the_fallback_is_itself_retried() -> None:
    store = store_of(1)
    store.faults["object-000"].extend(unavailable() for _ in range(11))
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        assert await read_all(reader, downloads_of(store)) == [store.objects["object-000"]]
    assert (reader.counters.fallbacks, reader.counters.retries) == (1, 10)


@simulated
async def test_an_object_that_appeared_meanwhile_is_found_by_the_fallback() -> None:
    store = store_of(3)
    late = store.objects.pop("object-002")
    downloads = [whole_object(key, 100, bytes) for key in names(3)]
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads)
        await anext(iteration)
        await runtime.sleep(1)
        store.objects["object-002"] = late
        assert [item.data async for item in iteration][-1] == late


@simulated
async def test_a_cancelled_download_falls_back() -> None:
    store = store_of(4, latency=lambda: 1.0)
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads_of(store))
        await runtime.sleep(0.5)
        cancelled = [task for task in live_tasks() if "object-002" in task.get_name()]
        assert len(cancelled) == 1
        cancelled[0].cancel()
        assert [item.data async for item in iteration] == list(store.objects.values())
    assert reader.counters.fallbacks == 1


@simulated
async def test_a_download_cancelled_twice_is_an_error_and_not_a_cancelled_consumer() -> None:
    async def fetch(store: Store) -> bytes:
        raise asyncio.CancelledError

    async with PrefetchReader(store_of(0), PrefetchSettings()) as reader:
        with pytest.raises(UnavailableError, match="object: its download was cancelled, twice"):
            await read_all(reader, [Download(key="object", size_bytes=1, fetch=fetch)])


# --- permanent failure


@simulated
async def test_a_permanent_failure_is_raised_with_the_window_drained_and_slots_released() -> None:
    store = store_of(40, latency=lambda: 0.05)
    store.always["object-002"] = unavailable("object-002")
    gate = Gate(store, 4)
    async with PrefetchReader(gate, PrefetchSettings(), ahead=gate.prefetching()) as reader:
        iteration = reader.read(downloads_of(store))
        assert [(await anext(iteration)).download.key for _ in range(2)] == names(2)
        with pytest.raises(UnavailableError, match="object-002: 503 SlowDown"):
            await anext(iteration)
        assert not live_tasks()
        assert (store.in_flight, gate.in_flight, gate.waiting) == (0, 0, 0)
        with pytest.raises(ClosedError, match="failed for good"):
            await anext(iteration)
        # The reader itself is not spoilt.
        del store.always["object-002"]
        assert len(await read_all(reader, downloads_of(store))) == 40
    assert store.count_key("object-002") >= 12


@simulated
async def test_a_store_that_is_down_is_not_asked_for_ever_more() -> None:
    store = store_of(40)
    for key in store.objects:
        store.always[key] = unavailable(key)
    async with PrefetchReader(store, PrefetchSettings(window=16, downloads=8)) as reader:
        iteration = reader.read(downloads_of(store))
        await runtime.sleep(600)
        assert store.count("get") == 8 * 6
        with pytest.raises(UnavailableError, match="object-000"):
            await anext(iteration)
