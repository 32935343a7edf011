"""The prefetch reader's window: order, bounds, memory and free slots of the store."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator

import pytest

from neve import runtime, settings
from neve.errors import ClosedError, DamagedError, InvalidError
from neve.log.downloads import (
    Download,
    split_ranges,
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
    until_idle,
)
from support.slow_store import SlowStore

# --- order, bounds, memory


@simulated
async def test_results_come_in_order_whatever_their_latency() -> None:
    store = store_of(40, latency=lambda: runtime.chance().uniform(0.001, 0.2))
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        assert await read_all(reader, downloads_of(store)) == list(store.objects.values())
    assert reader.counters.downloads == 40
    assert reader.counters.retries == reader.counters.fallbacks == 0
    assert not live_tasks()


@simulated
async def test_never_more_in_the_window_or_in_flight_than_set() -> None:
    store = store_of(50, latency=lambda: runtime.chance().uniform(0.001, 0.05))
    async with PrefetchReader(store, PrefetchSettings(window=6, downloads=3)) as reader:
        iteration = reader.read(downloads_of(store))
        await runtime.sleep(5)  # the consumer is slow: only the window may fill
        assert store.count("get") == 6
        assert [item.download.key async for item in iteration] == names(50)
    assert store.in_flight_peak == reader.counters.downloads_peak == 3
    assert reader.counters.window_peak == 6


@simulated
async def test_bytes_bound_the_window_and_one_larger_item_passes_alone() -> None:
    store = store_of(20, size=100)
    store.objects["object-007"] = b"x" * 1000
    async with PrefetchReader(store, PrefetchSettings(bytes=350)) as reader:
        iteration = reader.read(downloads_of(store))
        await runtime.sleep(1)
        assert store.count("get") == 3
        assert [item.download.key async for item in iteration] == names(20)
    assert reader.budget.peak == 1000
    assert reader.counters.window_peak == 3


@simulated
async def test_true_sizes_replace_estimates() -> None:
    store = store_of(20, size=100)
    downloads = [whole_object(key, 300, memoryview) for key in store.objects]
    async with PrefetchReader(store, PrefetchSettings(bytes=1000)) as reader:
        iteration = reader.read(downloads)
        await runtime.sleep(1)
        # Eight of 100 bytes are there; a ninth, guessed to have 300, would be above the bound.
        assert store.count("get") == 8
        await iteration.aclose()


@simulated
async def test_consumed_data_is_released_at_once() -> None:
    class Held:
        """Something large."""

    async def fetch(store: Store) -> Held:
        await store.get("object-000")
        return Held()

    store = store_of(1)
    store.faults["object-000"].append(unavailable())  # a retried one leaves no reference either
    downloads = [Download(key=str(n), size_bytes=10, fetch=fetch) for n in range(10)]
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads)
        seen: list[weakref.ref[Held]] = []
        for _ in range(5):
            item = await anext(iteration)
            seen.append(weakref.ref(item.data))
            del item
            assert seen[-1]() is None


@simulated
async def test_a_large_object_streams_in_ranges() -> None:
    data = bytes(range(256)) * 400
    store = SlowStore({"segment": data}, latency=lambda: 0.1)
    parts = split_ranges("segment", len(data), 10_000)
    assert len(parts) == 11
    assert sum(part.size_bytes for part in parts) == len(data)
    async with PrefetchReader(store, PrefetchSettings(window=4, downloads=2)) as reader:
        iteration = reader.read(parts)
        first = await anext(iteration)
        assert (runtime.monotonic(), bytes(first.data)) == (0.1, data[:10_000])
        rest = b"".join([bytes(item.data) async for item in iteration])
    assert bytes(first.data) + rest == data
    assert [part.start for part in split_ranges("segment", 25, 10, start=3)] == [3, 13, 23]
    assert split_ranges("segment", 0, 10) == []
    with pytest.raises(InvalidError, match="segment: it cannot be split into parts of 0"):
        split_ranges("segment", 10, 0)


@simulated
async def test_downloads_may_come_from_an_async_source_that_is_closed_with_the_reader() -> None:
    closed = []

    async def planned() -> AsyncIterator[Download[bytes]]:
        try:
            for download in downloads_of(store):
                await runtime.sleep(0.01)
                yield download
        finally:
            closed.append(True)

    store = store_of(8)
    async with PrefetchReader(store, PrefetchSettings(window=2, downloads=1)) as reader:
        assert len(await read_all(reader, planned())) == 8
        source = planned()  # held here, so that only the reader can have closed it
        iteration = reader.read(source)
        await anext(iteration)
        await runtime.sleep(1)  # the window is full: the source waits to be asked for more
    assert closed == [True, True]


@simulated
async def test_a_failing_source_is_told_after_what_came_before_it() -> None:
    async def planned() -> AsyncIterator[Download[bytes]]:
        yield downloads_of(store)[0]
        yield downloads_of(store)[1]
        raise DamagedError("manifest", "its checksum does not match")

    store = store_of(3)
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(planned())
        assert (await anext(iteration)).download.key == "object-000"
        assert (await anext(iteration)).download.key == "object-001"
        with pytest.raises(DamagedError, match="manifest is damaged"):
            await anext(iteration)
        with pytest.raises(ClosedError):
            await anext(iteration)


# --- slots


@simulated
async def test_prefetch_takes_only_slots_that_are_free() -> None:
    store = store_of(20, latency=lambda: 0.1)
    gate = Gate(store, 2)
    live = [runtime.spawn(gate.get("object-000")) for _ in range(20)]
    await until_idle()
    async with PrefetchReader(gate, PrefetchSettings(), ahead=gate.prefetching()) as reader:
        iteration = reader.read(downloads_of(store)[5:])
        await runtime.sleep(0.5)
        # Live calls hold all slots and others queue: reading ahead got nothing.
        assert {key for _, key in store.calls} == {"object-000"}
        assert gate.waiting == 20 - len(store.calls)
        assert reader.counters.slot_waits > 0
        # The item that the consumer waits for queues like any other call, and only it.
        reached = runtime.spawn(anext(iteration))  # type: ignore[arg-type]
        await until_idle()
        assert gate.waiting == 20 - len(store.calls) + 1
        assert (await reached).download.key == "object-005"
        assert store.calls[20] == ("get", "object-005")
        assert len([item async for item in iteration]) == 14
    assert all([(await task) for task in live])
    assert store.in_flight_peak == gate.peak == 2
    assert gate.in_flight == 0


@simulated
async def test_free_slots_are_used_without_the_consumer() -> None:
    store = store_of(20)
    gate = Gate(store, 4)
    async with PrefetchReader(gate, PrefetchSettings(), ahead=gate.prefetching()) as reader:
        iteration = reader.read(downloads_of(store))
        await runtime.sleep(5)
        assert store.count("get") == 16
        assert len([item async for item in iteration]) == 20


# --- the setting


def test_more_downloads_than_the_window_are_refused_as_a_setting() -> None:
    with pytest.raises(InvalidError, match=r"prefetch\.downloads \(5\) exceeds prefetch\.window"):
        PrefetchSettings(window=4, downloads=5)
    with pytest.raises(InvalidError, match=r"prefetch\.downloads \(8\) exceeds prefetch\.window"):
        settings.load(environment={"NEVE_PREFETCH_WINDOW": "4"})
