"""Retries of the prefetch reader, and reads that are checked before they are believed."""

from __future__ import annotations

import itertools

import pytest

from neve import runtime
from neve.errors import DamagedError, NotFoundError
from neve.log.downloads import (
    fetch_checked,
    fetch_range_checked,
    split_ranges,
    whole_object,
)
from neve.log.prefetch import PrefetchReader
from neve.settings import PrefetchSettings
from support.prefetching import (
    downloads_of,
    names,
    read_all,
    simulated,
    store_of,
    unavailable,
)
from support.slow_store import SlowStore

# --- retries and backoff as set


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
        with pytest.raises(DamagedError, match="requested bytes 0 to 10"):
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


# --- checked fetches


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
    with pytest.raises(DamagedError, match="requested bytes 8 to 12, received 2 bytes"):
        await fetch_range_checked(store, "object", 8, 12, bytes)
    assert store.count("get_range") == 5
