"""The index cache: files that survive restarts, one loader, a bound, and damage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from neve import runtime
from neve.errors import ClosedError, DamagedError, InvalidError, NotFoundError, UnavailableError
from neve.log import index_cache, index_files, keys
from neve.log.index_cache import IndexCache
from neve.log.index_files import decode_entry, encode_entry
from neve.log.manifest.records import Segment
from neve.log.remote import BucketRemoteStorage, IndexAbsentError, RemoteStorage
from neve.log.segment.bundle import Bundle
from neve.log.segment.sections import Section
from neve.settings import CacheSettings
from support import format_samples as samples
from support.slow_store import SlowStore

SEGMENT_DATA, INDEX_DATA = samples.pair()
FOREIGN_INDEX = samples.foreign_index(SEGMENT_DATA)
PREFIX = keys.segment_prefix("orders", b"\1" * 16, 3)


def listed(number: int = 0, **changed: Any) -> Segment:
    name = f"{PREFIX}segment-{100:020d}-{5:020d}-{number:016x}"
    segment = Segment(
        key=f"{name}.kfs",
        base=100,
        last=108,
        bytes=len(SEGMENT_DATA),
        records=9,
        min_timestamp=900,
        max_timestamp=5105,
        created_ms=77,
        epoch=4,
        crc=0,
        index_key=f"{name}.index",
        index_bytes=len(INDEX_DATA),
    )
    return msgspec.structs.replace(segment, **changed)


SEGMENTS = [listed(number) for number in range(40)]
ONE = SEGMENTS[0]
ENTRY_BYTES = len(encode_entry(str(ONE.index_key), INDEX_DATA))


def bucket() -> SlowStore:
    return SlowStore({str(each.index_key): INDEX_DATA for each in SEGMENTS})


@asynccontextmanager
async def opened(store: SlowStore, folder: Path | str, **chosen: Any) -> AsyncIterator[IndexCache]:
    settings = CacheSettings(index_folder=str(folder), **chosen)
    async with await IndexCache.open(BucketRemoteStorage(store), settings) as cache:
        yield cache


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def is_right(bundle: Bundle) -> bool:
    bundle.check_all()
    return samples.read_segment_by_range(SEGMENT_DATA, bundle) is not None and (
        b"state" in [row.key for row in bundle.state or ()]
    )


def live_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


# --- restarts ---


async def test_entries_are_used_after_a_restart_without_a_request(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path) as cache:
        for segment in SEGMENTS[:5]:
            assert is_right(await cache.get(segment))
        assert cache.counters.loads == 5
    store = bucket()
    async with opened(store, tmp_path) as cache:
        for segment in SEGMENTS[:5]:
            bundle = await cache.get(segment)
            assert is_right(bundle)
            assert bundle.key == segment.index_key
        assert (cache.counters.file_hits, cache.counters.loads) == (5, 0)
    assert store.calls == []


async def test_a_hot_bundle_is_read_from_no_file(tmp_path: Path) -> None:
    store = bucket()
    async with opened(store, tmp_path) as cache:
        first = await cache.get(ONE)
        await cache.settle()
        entries(tmp_path)[0].unlink()
        assert await cache.get(ONE) is first
        assert cache.counters.memory_hits == 1
    assert store.count("get") == 1


async def test_an_entry_is_named_by_its_key_alone(tmp_path: Path) -> None:
    long_key = listed(index_key=f"{'ns/' * 200}../segment-{100:020d}.index")
    store = SlowStore({str(long_key.index_key): FOREIGN_INDEX})
    async with opened(store, tmp_path) as cache:
        assert (await cache.get(long_key)).kinds == (Section.OFFSET,)
    async with opened(SlowStore(), tmp_path) as cache:
        assert not (await cache.get(long_key)).checksummed
    (path,) = entries(tmp_path)
    assert path.parent == tmp_path
    assert len(path.name) < 100


# --- missing, incomplete, damaged ---


async def changed_entry_is_refetched(
    tmp_path: Path, change: Callable[[Path], object]
) -> IndexCache:
    async with opened(bucket(), tmp_path) as cache:
        await cache.get(ONE)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    store = bucket()
    async with opened(store, tmp_path) as cache:
        change(path)
        assert is_right(await cache.get(ONE))
    # Refetched whole with one request, and in place again.
    assert store.calls == [("get", ONE.index_key)]
    assert [each.read_bytes() for each in entries(tmp_path)] == [whole]
    return cache


async def test_a_missing_entry_is_refetched_with_one_request(tmp_path: Path) -> None:
    await changed_entry_is_refetched(tmp_path, lambda path: path.unlink())


async def test_a_cut_entry_is_refetched_with_one_request(tmp_path: Path) -> None:
    cache = await changed_entry_is_refetched(tmp_path, lambda path: os.truncate(path, 200))
    assert cache.file_counters.damaged == 1


async def test_an_empty_entry_is_refetched_with_one_request(tmp_path: Path) -> None:
    await changed_entry_is_refetched(tmp_path, lambda path: os.truncate(path, 0))


async def test_a_flipped_entry_is_refetched_with_one_request(tmp_path: Path) -> None:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    cache = await changed_entry_is_refetched(tmp_path, flip)
    assert cache.file_counters.damaged == 1


async def test_another_s_entry_under_this_name_is_refetched(tmp_path: Path) -> None:
    await changed_entry_is_refetched(
        tmp_path, lambda path: path.write_bytes(encode_entry("another key", INDEX_DATA))
    )


async def test_an_entry_of_a_folder_where_a_file_should_be_is_refetched(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path) as cache:
        await cache.get(ONE)
    (path,) = entries(tmp_path)
    store = bucket()
    async with opened(store, tmp_path) as cache:
        path.unlink()
        path.mkdir()
        assert is_right(await cache.get(ONE))
        await cache.settle()
        # Trouble with files is counted and is not the reader's.
        assert cache.file_counters.failures > 0
    assert store.count("get") == 1


def test_every_flip_and_every_cut_of_an_entry_is_noticed() -> None:
    entry = encode_entry("key", b"the bundle")
    assert decode_entry("key", entry) == b"the bundle"
    assert decode_entry("kez", entry) is None
    for length in range(len(entry)):
        assert decode_entry("key", entry[:length]) is None
    assert decode_entry("key", entry + b"\0") is None
    for position in range(len(entry)):
        flipped = bytearray(entry)
        flipped[position] ^= 0x10
        assert decode_entry("key", bytes(flipped)) is None


async def test_an_entry_that_is_not_this_segment_s_is_refetched(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path) as cache:
        await cache.get(ONE)
    store = bucket()
    async with opened(store, tmp_path) as cache:
        with pytest.raises(DamagedError):
            await cache.get(listed(bytes=len(SEGMENT_DATA) + 1))
        assert store.count("get") > 0
        assert is_right(await cache.get(ONE))


# --- one loader ---


async def test_one_request_for_100_waiting_readers(tmp_path: Path) -> None:
    store = bucket()
    async with opened(store, tmp_path) as cache:
        bundles = await runtime.gather(*(cache.get(ONE) for _ in range(100)))
        assert all(bundle is bundles[0] for bundle in bundles)
    assert store.calls == [("get", ONE.index_key)]


async def test_a_failed_load_fails_all_who_waited_and_is_not_remembered(tmp_path: Path) -> None:
    store = bucket()
    store.faults[str(ONE.index_key)].append(UnavailableError("index", "503"))
    async with opened(store, tmp_path) as cache:
        waiters = [runtime.spawn(cache.get(ONE)) for _ in range(10)]
        await asyncio.wait(waiters)
        assert all(isinstance(each.exception(), UnavailableError) for each in waiters)
        assert store.count("get") == 1
        assert is_right(await cache.get(ONE))
        assert (cache.counters.loads, cache.counters.load_failures) == (2, 1)
    assert store.count("get") == 2


async def test_a_missing_index_is_a_clear_error_and_others_go_on() -> None:
    store = bucket()
    del store.objects[str(ONE.index_key)]
    async with opened(store, "") as cache:
        with pytest.raises(NotFoundError, match=str(ONE.index_key)):
            await cache.get(ONE)
        assert is_right(await cache.get(SEGMENTS[1]))


async def test_a_cancelled_waiter_does_not_cancel_the_load_of_the_others(tmp_path: Path) -> None:
    store = bucket()
    async with opened(store, tmp_path) as cache:
        waiters = [runtime.spawn(cache.get(ONE)) for _ in range(3)]
        await runtime.sleep(0.002)
        waiters[0].cancel()
        assert is_right(await waiters[1])
        assert is_right(await waiters[2])
        assert waiters[0].cancelled()
    assert store.count("get") == 1


async def test_a_load_that_nobody_waits_for_any_more_ends_quietly(tmp_path: Path) -> None:
    store = bucket()
    store.faults[str(ONE.index_key)].append(UnavailableError("index", "503"))
    async with opened(store, tmp_path) as cache:
        for _ in range(2):
            waiter = runtime.spawn(cache.get(ONE))
            await runtime.sleep(0.002)
            waiter.cancel()
            await asyncio.wait([waiter])
            await cache.settle()
        # The second load succeeded and was kept.
        assert is_right(await cache.get(ONE))
    assert store.count("get") == 2


async def test_closing_ends_loads_and_leaves_no_task(tmp_path: Path) -> None:
    store = bucket()
    store.latency = lambda: 60.0
    cache = await IndexCache.open(
        BucketRemoteStorage(store), CacheSettings(index_folder=str(tmp_path))
    )
    waiters = [runtime.spawn(cache.get(ONE)) for _ in range(2)]
    await runtime.sleep(0.01)
    await cache.aclose()
    await asyncio.wait(waiters)
    assert all(isinstance(each.exception(), ClosedError) for each in waiters)
    with pytest.raises(ClosedError):
        await cache.get(ONE)
    assert store.in_flight == 0
    assert not live_tasks()
    assert entries(tmp_path) == []


# --- the bound ---


async def test_the_size_bound_is_held_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 5 * ENTRY_BYTES + 10
    peaks: list[int] = []
    really_write = index_files._write

    def watched_write(path: Path, entry: bytes) -> None:
        really_write(path, entry)
        peaks.append(folder_bytes(tmp_path))

    monkeypatch.setattr(index_files, "_write", watched_write)
    async with opened(bucket(), tmp_path, index_bytes=bound, index_memory_bytes=0) as cache:
        for _ in range(3):
            await runtime.gather(*(cache.get(segment) for segment in SEGMENTS))
            assert cache.file_bytes <= bound
        await cache.settle()
        assert len(entries(tmp_path)) == 5
        assert cache.file_bytes == folder_bytes(tmp_path) == 5 * ENTRY_BYTES
        assert cache.file_counters.evicted == len(peaks) - 5
    assert len(peaks) >= 40
    assert max(peaks) <= bound


async def test_what_was_used_longest_ago_goes_first_also_after_a_restart(tmp_path: Path) -> None:
    bound = 3 * ENTRY_BYTES
    async with opened(bucket(), tmp_path, index_bytes=bound, index_memory_bytes=0) as cache:
        for number in (0, 1, 2, 0):
            await cache.get(SEGMENTS[number])
            await cache.settle()
    now = 1_000_000_000
    names = {path.name: path for path in entries(tmp_path)}
    for age, number in ((30, 1), (20, 2), (10, 0)):
        path = names[index_files._name(str(SEGMENTS[number].index_key))]
        os.utime(path, (now - age, now - age))
    store = bucket()
    async with opened(store, tmp_path, index_bytes=bound, index_memory_bytes=0) as cache:
        await cache.get(SEGMENTS[1])  # the oldest, now used again
        used = names[index_files._name(str(SEGMENTS[1].index_key))]
        assert used.stat().st_mtime > now  # which the next process sees too
        await cache.get(SEGMENTS[9])
        await cache.settle()
        assert store.count("get") == 1
        for number in (9, 1, 0):
            await cache.get(SEGMENTS[number])
        assert store.count("get") == 1
        await cache.get(SEGMENTS[2])
        assert store.count("get") == 2


async def test_a_hit_in_memory_keeps_the_file_as_well(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path, index_bytes=2 * ENTRY_BYTES) as cache:
        for number in (0, 1, 0, 2):
            await cache.get(SEGMENTS[number])
            await cache.settle()
    kept = {path.name for path in entries(tmp_path)}
    assert kept == {index_files._name(str(SEGMENTS[number].index_key)) for number in (0, 2)}


async def test_a_lower_bound_is_held_from_the_start(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path) as cache:
        await runtime.gather(*(cache.get(segment) for segment in SEGMENTS))
    assert len(entries(tmp_path)) == 40
    async with opened(bucket(), tmp_path, index_bytes=7 * ENTRY_BYTES):
        assert len(entries(tmp_path)) == 7


async def test_an_entry_above_the_bound_is_served_and_not_kept(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path, index_bytes=100, index_memory_bytes=100) as cache:
        assert is_right(await cache.get(ONE))
        await cache.settle()
        assert (cache.file_bytes, cache.memory_bytes) == (0, 0)
    assert entries(tmp_path) == []


async def test_memory_in_front_of_the_files_has_its_own_bound(tmp_path: Path) -> None:
    store = bucket()
    async with opened(store, tmp_path, index_memory_bytes=5000) as cache:
        for segment in SEGMENTS:
            await cache.get(segment)
            assert 0 < cache.memory_bytes <= 5000
        await cache.settle()
        await cache.get(SEGMENTS[0])
        assert cache.counters.file_hits == 1
    assert store.count("get") == 40


async def test_without_a_folder_memory_keeps_its_own_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = bucket()
    async with opened(store, "", index_memory_bytes=5000) as cache:
        for segment in SEGMENTS:
            assert is_right(await cache.get(segment))
            assert is_right(await cache.get(segment))
            assert 0 < cache.memory_bytes <= 5000
        assert cache.counters.memory_hits == 40
    assert store.count("get") == 40
    assert entries(tmp_path) == []


async def test_what_cannot_be_removed_goes_on_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refused)
    async with opened(bucket(), tmp_path, index_bytes=2 * ENTRY_BYTES) as cache:
        for segment in SEGMENTS[:6]:
            assert is_right(await cache.get(segment))
            await cache.settle()
        assert cache.file_counters.failures > 0
        assert folder_bytes(tmp_path) == cache.file_bytes == 2 * ENTRY_BYTES


async def test_an_entry_that_was_evicted_and_comes_back_is_not_removed(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path, index_bytes=ENTRY_BYTES, index_memory_bytes=0) as cache:
        for number in (0, 1, 0, 1, 0):
            await cache.get(SEGMENTS[number])
        await cache.settle()
        assert len(entries(tmp_path)) == 1


# --- files ---


async def test_stray_files_of_a_crash_are_removed_and_others_are_left(tmp_path: Path) -> None:
    async with opened(bucket(), tmp_path) as cache:
        await cache.get(ONE)
    (path,) = entries(tmp_path)
    stray = tmp_path / f"{path.name}.00ff00ff00ff00ff.temporary"
    stray.write_bytes(b"half an ent")
    theirs = tmp_path / "README"
    theirs.write_bytes(b"somebody's")
    async with opened(bucket(), tmp_path):
        assert entries(tmp_path) == sorted([path, theirs])


async def test_an_entry_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def crash(path: Path, target: Path) -> Path:
        written.append(path.name)
        assert entries(tmp_path) == [path]
        raise OSError(5, "the machine stops here")

    monkeypatch.setattr(Path, "replace", crash)
    async with opened(bucket(), tmp_path) as cache:
        assert is_right(await cache.get(ONE))
        await cache.settle()
        assert cache.file_counters.failures == 1
        assert cache.file_bytes == 0
    assert written[0].endswith(".temporary")
    assert entries(tmp_path) == []


async def test_a_full_disk_is_not_the_reader_s_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    async with opened(bucket(), tmp_path) as cache:
        assert is_right(await cache.get(ONE))
        await cache.settle()
        assert cache.file_counters.failures == 1


async def test_a_folder_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidError, match=r"index\.cache\.folder: .*file cannot be used"):
        async with opened(bucket(), tmp_path / "file"):
            pass


async def test_a_slow_disk_costs_entries_and_not_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "WRITES_PENDING_MAX", 3)
    async with opened(bucket(), tmp_path) as cache:
        await cache._folder._writing.acquire()  # type: ignore[union-attr]
        await runtime.gather(*(cache.get(segment) for segment in SEGMENTS[:10]))
        assert cache.counters.writes_skipped == 7
        cache._folder._writing.release()  # type: ignore[union-attr]
    assert len(entries(tmp_path)) == 3


# --- other sources ---


async def test_a_segment_without_an_index_needs_no_request(tmp_path: Path) -> None:
    store = bucket()
    async with opened(store, tmp_path) as cache:
        bundle = await cache.get(listed(index_key=None))
        assert (bundle.kinds, len(bundle.offsets)) == ((Section.OFFSET,), 1)
    assert (store.calls, entries(tmp_path)) == ([], [])


async def test_a_plug_in_that_knows_only_fetch_index_is_cached_too(tmp_path: Path) -> None:
    class PlugIn(RemoteStorage):
        asked = 0

        async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
            self.asked += 1
            if kind is Section.TRANSACTION:
                raise IndexAbsentError(segment, kind)
            return await BucketRemoteStorage(bucket()).fetch_index(segment, kind)

    plug_in = PlugIn()
    settings = CacheSettings(index_folder=str(tmp_path))
    for _ in range(2):
        async with await IndexCache.open(plug_in, settings) as cache:
            bundle = await cache.get(ONE)
            assert bundle.kinds == tuple(kind for kind in Section if kind != Section.TRANSACTION)
    assert plug_in.asked == len(Section)


def test_the_cache_runs_in_simulation(tmp_path: Path) -> None:
    async def scenario() -> int:
        store = bucket()
        async with opened(store, tmp_path, index_bytes=4 * ENTRY_BYTES) as cache:
            wanted = runtime.chance().choices(SEGMENTS, k=200)
            await runtime.gather(*(cache.get(segment) for segment in wanted))
        return store.count("get")

    assert runtime.simulate(scenario(), seed=3) == 40
