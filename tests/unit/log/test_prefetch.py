"""The prefetching reader, against a slow and failing source."""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from neve import runtime, settings
from neve.errors import ClosedError, DamagedError, InvalidError, NotFoundError, UnavailableError
from neve.log.fetch import (
    Download,
    fetch_checked,
    fetch_range_checked,
    split_ranges,
    whole_object,
)
from neve.log.prefetch import PrefetchReader
from neve.settings import PrefetchSettings
from neve.store.gate import Gate
from neve.store.port import Store
from support.slow_store import SlowStore

SIMULATED = Callable[[], Coroutine[Any, Any, None]]


def simulated(test: SIMULATED) -> Callable[[], None]:
    """Run an async test in virtual time, twice over, so that it also holds for another seed."""

    def run() -> None:
        for seed in (1, 2):
            runtime.simulate(test(), seed=seed)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def names(count: int) -> list[str]:
    return [f"object-{index:03d}" for index in range(count)]


def store_of(count: int, size: int = 100, **options: Any) -> SlowStore:
    return SlowStore({key: key.encode().ljust(size, b".") for key in names(count)}, **options)


def downloads_of(store: SlowStore) -> list[Download[bytes]]:
    return [whole_object(key, len(data), bytes) for key, data in sorted(store.objects.items())]


def unavailable(key: str = "object") -> UnavailableError:
    return UnavailableError(key, "503 SlowDown")


async def read_all(reader: PrefetchReader, downloads: Any) -> list[Any]:
    return [item.data async for item in reader.read(downloads)]


def live_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def until_idle() -> None:
    """Let everything that is ready run, and a little time pass."""
    await runtime.sleep(0.001)


# --- order, bounds, memory ---


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


# --- retries and backoff as set ---


@simulated
async def test_retries_and_backoff_are_as_set() -> None:
    store = store_of(1, latency=lambda: 0.0)
    store.faults["object-000"].extend(unavailable() for _ in range(5))
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        assert await read_all(reader, downloads_of(store)) == [store.objects["object-000"]]
    times = store.times["object-000"]
    assert len(times) == 6
    assert (reader.counters.retries, reader.counters.fallbacks) == (5, 0)
    for attempt, (before, after) in enumerate(itertools.pairwise(times)):
        longest = 0.1 * 2**attempt
        assert 0.75 * longest <= after - before <= longest


@simulated
async def test_no_pause_is_longer_than_the_cap() -> None:
    store = store_of(1, latency=lambda: 0.0)
    store.faults["object-000"].extend(unavailable() for _ in range(10))
    chosen = PrefetchSettings(retries=10, retry_jitter=0, retry_cap_ms=1000)
    async with PrefetchReader(store, chosen) as reader:
        await read_all(reader, downloads_of(store))
    times = store.times["object-000"]
    pauses = [round(after - before, 6) for before, after in itertools.pairwise(times)]
    assert pauses == [0.1, 0.2, 0.4, 0.8] + [1.0] * 6


@simulated
async def test_a_torn_read_is_read_again() -> None:
    store = SlowStore({"segment": b"0123456789"})
    store.faults["segment"].append(lambda data: data[: len(data) // 2])
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        data = b"".join(map(bytes, await read_all(reader, split_ranges("segment", 10, 5))))
    assert data == b"0123456789"
    assert reader.counters.retries == 1


@simulated
async def test_damage_is_believed_after_three_reads_and_the_fallback_s_three() -> None:
    store = SlowStore({"segment": b"0123"})
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        with pytest.raises(DamagedError, match="bytes 0 to 10 were asked for"):
            await read_all(reader, split_ranges("segment", 10))
    assert store.count("get_range") == 6
    assert runtime.monotonic() < 1


@simulated
async def test_what_does_not_pass_is_not_retried() -> None:
    store = store_of(3)
    del store.objects["object-001"]
    downloads = [whole_object(key, 100, bytes) for key in names(3)]
    async with PrefetchReader(store, PrefetchSettings()) as reader:
        iteration = reader.read(downloads)
        await anext(iteration)
        with pytest.raises(NotFoundError, match="object-001"):
            await anext(iteration)
    # The download, and the one look again when the consumer came to it.
    assert store.count_key("object-001") == 2
    assert (reader.counters.retries, reader.counters.fallbacks) == (0, 1)


# --- fallback ---


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


# --- permanent failure ---


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


# --- closing ---


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


async def test_reading_ahead_in_real_time_beats_the_serial_loop() -> None:
    store = store_of(24, latency=lambda: 0.02)
    start = runtime.monotonic()
    async with PrefetchReader(store, PrefetchSettings(window=16, downloads=8)) as reader:
        assert await read_all(reader, downloads_of(store)) == list(store.objects.values())
    assert runtime.monotonic() - start < 24 * 0.02 / 2


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


# --- a second iteration ---


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


# --- slots ---


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


# --- the setting ---


def test_more_downloads_than_the_window_are_refused_as_a_setting() -> None:
    with pytest.raises(InvalidError, match=r"prefetch\.downloads \(5\) exceeds prefetch\.window"):
        PrefetchSettings(window=4, downloads=5)
    with pytest.raises(InvalidError, match=r"prefetch\.downloads \(8\) exceeds prefetch\.window"):
        settings.load(environment={"NEVE_PREFETCH_WINDOW": "4"})


# --- measured: recovery of 32 objects against the serial loop ---

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


# --- checked fetches ---


def _decoded(data: memoryview) -> bytes:
    if bytes(data) != b"0123456789":
        raise DamagedError("object", f"{len(data)} bytes")
    return bytes(data)


@simulated
async def test_a_torn_whole_read_is_not_believed() -> None:
    store = SlowStore({"object": b"0123456789"})
    store.faults["object"].extend([lambda data: data[:3], lambda data: data[:4]])
    assert await fetch_checked(store, "object", 10, _decoded) == b"0123456789"
    store.faults["object"].extend([lambda d: d[:1], lambda d: d[:2], lambda d: d[:3]])
    with pytest.raises(DamagedError, match="3 bytes"):
        await fetch_checked(store, "object", 10, _decoded)
    assert store.count("get") == 6


@simulated
async def test_a_torn_ranged_read_is_not_believed() -> None:
    store = SlowStore({"object": b"0123456789"})
    store.faults["object"].append(lambda data: data[:3])
    assert await fetch_range_checked(store, "object", 2, 6, bytes) == b"2345"
    with pytest.raises(DamagedError, match="bytes 8 to 12 were asked for and 2 bytes came back"):
        await fetch_range_checked(store, "object", 8, 12, bytes)
    assert store.count("get_range") == 5
