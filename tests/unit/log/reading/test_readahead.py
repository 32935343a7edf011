"""Lagging readers: what is read ahead for them, within which bounds, and what is left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from neve import runtime
from neve.errors import ClosedError, DamagedError, UnavailableError
from neve.log.reading.leader.blocks import Block
from neve.log.reading.record_chunk import RecordChunk
from neve.settings import Settings
from neve.store.gate import Gate
from support.log_reading import World, reading, small_fetch
from support.node_world import small_settings
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

RECORD = b"r" * 100
COUNT = 200
LARGE = small_settings(segment_bytes=4_000)


async def cold(world: World, count: int = COUNT) -> None:
    """Segments of some 4,000 bytes, nothing in memory."""
    for _ in range(count):
        await world.send_batch([(1_000, RECORD)])
    while await world.log.tier():
        pass
    world.forget()
    world.store.calls.clear()


@in_simulation
async def test_a_sequential_reader_waits_for_the_store_a_few_times_only() -> None:
    store = ScriptedStore()
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        store.latency = lambda: 0.01
        began = runtime.monotonic()
        offset = 0
        while offset < world.log.high_watermark:
            offset = (await world.read_checked(offset, 1_000)).next_offset
            await runtime.sleep(0.002)  # what its consumer takes for each chunk
        took = runtime.monotonic() - began
        chunks = COUNT / 6
        assert took < chunks * 0.002 + 0.1, "it waited for more than the first few gets"
        assert len(world.gets()) < 60, "each range and index once"
        assert len(set(world.gets())) > 5, "through the boundaries of segments"


@in_simulation
async def test_a_single_read_reads_nothing_ahead() -> None:
    async with reading(settings=LARGE, fetch=small_fetch(readahead_part_bytes=10_000)) as world:
        await cold(world)
        await world.read_checked(50, 500)
        await runtime.sleep(1)
        assert len(world.gets()) == 2, "an index and a range"


@in_simulation
async def test_what_is_read_ahead_is_bounded_and_released() -> None:
    fetch = small_fetch(catchup_bytes=6_000, readahead_idle_ms=5_000)
    async with reading(settings=LARGE, fetch=fetch) as world:
        await cold(world)
        budget = world.reader.cold.budget
        await world.read_all(0, 700)
        assert 2_000 < budget.peak <= 6_000
        assert budget.used == 0, "all of it was consumed"
        offset = 0
        for _ in range(4):
            offset = (await world.read_checked(offset, 700)).next_offset
        await runtime.sleep(1)
        assert budget.used > 0
        await runtime.sleep(10)
        assert (budget.used, len(world.reader.cold.cursors)) == (0, 0), "its reader did not come"


@in_simulation
async def test_a_reader_alone_has_half_of_the_budget_and_less_beside_one_that_waits() -> None:
    store = ScriptedStore()
    fetch = small_fetch(catchup_bytes=12_000)
    async with reading(store=store, settings=LARGE, fetch=fetch) as world:
        await cold(world)

        async def held_ahead(offset: int) -> tuple[int, int]:
            for _ in range(6):
                offset = (await world.read_checked(offset, 300)).next_offset
            await runtime.sleep(1)
            cursor = world.reader.cold.cursors.peek(world.log, offset)
            assert cursor is not None
            return offset, cursor.held_bytes

        offset, alone = await held_ahead(0)
        assert 5_000 < alone <= 6_000
        never = asyncio.Event()
        store.when("get_range", lambda _: True, hold(never), times=1)
        other = runtime.spawn(world.reader.read(world.log, 150, 900))
        await runtime.sleep(0.1)
        for _ in range(4):
            offset, beside = await held_ahead(offset)
        assert 3_000 < beside <= 4_000, "it counts as a reader while it waits for the store"
        never.set()
        await other


@in_simulation
async def test_what_was_read_ahead_and_cannot_be_cut_is_let_go() -> None:
    def refuse_to_cut(*_: object, **__: object) -> None:
        raise DamagedError("topics/t/segment", "there is no batch at 17")

    async with reading(settings=LARGE) as world:
        await cold(world)
        offset = 0
        for _ in range(4):
            offset = (await world.read_checked(offset, 700)).next_offset
        await runtime.sleep(1)
        assert world.reader.cold.budget.used > 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Block, "cut", refuse_to_cut)
            with pytest.raises(DamagedError):
                world.reader.read_now(world.log, offset, 700)
        assert world.reader.cold.budget.used == 0
        await world.read_checked(offset, 700)


@in_simulation
async def test_consumed_blocks_are_let_go_at_once() -> None:
    async with reading(settings=LARGE) as world:
        await cold(world)
        offset = 0
        while offset < world.log.high_watermark:
            offset = (await world.read_checked(offset, 900)).next_offset
            for rows in world.reader.cold.blocks._of_source.values():
                assert all(block.located.end_offset > offset for block in rows)


@in_simulation
async def test_many_readers_stay_within_the_budget_and_all_get_on() -> None:
    fetch = small_fetch(catchup_bytes=5_000, catchup_concurrency=3)
    store = ScriptedStore(latency=lambda: runtime.chance().random() * 0.01)
    async with reading(store=store, settings=LARGE, fetch=fetch) as world:
        await cold(world)
        starts = [0, 0, 40, 80, 81, 120, 160, 190]
        await runtime.gather(*(world.read_all(start, 600) for start in starts))
        budget = world.reader.cold.budget
        assert budget.peak <= 5_000
        assert budget.waiting == 0


@in_simulation
async def test_cursors_are_bounded_and_the_longest_unused_goes_first() -> None:
    async with reading(settings=LARGE, fetch=small_fetch(readahead_cursors=3)) as world:
        await cold(world)
        ends = [(await world.read_checked(at, 300)).next_offset for at in (0, 50, 100, 150)]
        cursors = world.reader.cold.cursors
        assert len(cursors) == 3
        assert cursors.peek(world.log, ends[0]) is None
        assert cursors.peek(world.log, ends[1]) is not None


@in_simulation
async def test_no_cursors_no_reading_ahead() -> None:
    async with reading(settings=LARGE, fetch=small_fetch(readahead_cursors=0)) as world:
        await cold(world)
        await world.read_all(0, 500)
        assert len(world.reader.cold.cursors) == 0


@in_simulation
async def test_two_readers_of_the_same_range_share_one_download() -> None:
    store = ScriptedStore(latency=lambda: 0.01)
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        chunks = await runtime.gather(*(world.read_checked(10, 900) for _ in range(3)))
        assert len({bytes(chunk.parts[0]) for chunk in chunks}) == 1
        assert len(world.gets()) == 2, "one index and one range for all"


@in_simulation
async def test_two_readers_that_are_close_together_share_what_is_read_ahead() -> None:
    async def downloads(*starts: int) -> int:
        store = ScriptedStore(latency=lambda: 0.01)
        async with reading(
            store=store, settings=LARGE, fetch=small_fetch(catchup_bytes=40_000)
        ) as world:
            await cold(world)
            await runtime.gather(*(world.read_all(start, 900) for start in starts))
            return world.reader.cold.blocks.counters.downloads

    alone = await downloads(0)
    assert await downloads(0, 3) <= alone * 1.2


@in_simulation
async def test_reading_ahead_takes_free_slots_only_and_a_waiting_reader_queues() -> None:
    store = ScriptedStore()
    gate = Gate(store, 1)
    async with reading(settings=LARGE, store=store, ahead=gate.prefetching()) as world:
        await cold(world)
        offset = (await world.read_checked(0, 900)).next_offset
        assert gate.try_enter(), "live traffic takes the only slot"
        offset = (await world.read_checked(offset, 900)).next_offset
        await runtime.sleep(1)
        assert world.reader.cold.blocks.counters.slot_waits > 0
        # It is demanded now, so it goes the ordinary way.
        await world.read_checked(offset, 900)
        gate.leave()


@in_simulation
async def test_lagging_readers_take_turns_in_order() -> None:
    store = ScriptedStore()
    release, reached = asyncio.Event(), asyncio.Event()
    async with reading(
        store=store, settings=LARGE, fetch=small_fetch(catchup_concurrency=1)
    ) as world:
        await cold(world)
        store.when("get_range", lambda _: True, hold(release, reached))
        done: list[int] = []

        async def read(at: int) -> None:
            await world.read_checked(at, 300)
            done.append(at)

        tasks = [runtime.spawn(read(at)) for at in (0, 150, 50, 100)]
        await reached.wait()
        tasks[2].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[2]
        # Who reads from memory waits for none of them.
        await world.send(10)
        assert world.reader.read_now(world.log, COUNT, 100) is not None
        assert done == []
        release.set()
        await asyncio.wait(tasks)
        assert done == [0, 150, 100]


@in_simulation
async def test_a_cancelled_reader_leaves_its_place_and_then_nothing() -> None:
    store = ScriptedStore()
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        store.latency = lambda: 0.05
        for _ in range(10):
            try:
                async with runtime.deadline(0.02):
                    await world.reader.read(world.log, 0, 900)
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("a slow store never gets an impatient reader on")
        assert len(world.gets()) == 2
        reader = runtime.spawn(world.reader.read(world.log, 100, 900))
        await runtime.sleep(0.06)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await runtime.sleep(60)
        cold_reader = world.reader.cold
        assert (len(cold_reader.cursors), len(cold_reader.blocks)) == (0, 0)
        assert cold_reader.budget.used == 0


@in_simulation
async def test_an_impatient_reader_gets_past_a_missing_index_too() -> None:
    store = ScriptedStore()
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        segment = (await world.log.manifest.segments(0, 0))[0]
        assert segment.index_key is not None
        await store.delete(segment.index_key)
        store.latency = lambda: 0.05
        for _ in range(20):
            try:
                async with runtime.deadline(0.02):
                    world.check(await world.reader.read(world.log, 0, 900), 0, 900)
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("it begins anew each time")
        assert store.asked("get", segment.key) == 1


@in_simulation
async def test_cancelling_one_of_two_readers_leaves_the_download_to_the_other() -> None:
    store = ScriptedStore(latency=lambda: 0.05)
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        one = runtime.spawn(world.reader.read(world.log, 0, 900))
        two = runtime.spawn(world.read_checked(0, 900))
        await runtime.sleep(0.06)
        one.cancel()
        await two
        assert len(world.gets()) == 2


@in_simulation
async def test_closing_ends_what_is_in_flight() -> None:
    store = ScriptedStore()
    never = asyncio.Event()
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        await world.read_checked(0, 900)
        store.when("get_range", lambda _: True, hold(never), times=None)
        readers = [runtime.spawn(world.reader.read(world.log, 100, 900)) for _ in range(3)]
        await runtime.sleep(1)
        readers[2].cancel()
        await world.reader.aclose()
        for reader in readers[:2]:
            with pytest.raises((ClosedError, UnavailableError)):
                await reader
        # `reading` checks that nothing was begun anew.


@in_simulation
async def test_a_failed_read_ahead_is_read_again_on_demand() -> None:
    store = ScriptedStore()
    ahead = ScriptedStore(store.bucket)
    ahead.when("get_range", lambda _: True, refuse(UnavailableError), times=None)
    async with reading(store=store, settings=LARGE, ahead=ahead) as world:
        await cold(world)
        offset = 0
        while offset < world.log.high_watermark:
            offset = (await world.read_checked(offset, 900)).next_offset
            await runtime.sleep(0.1)
        assert ahead.asked("get_range") > 10


@in_simulation
async def test_a_store_that_is_down_is_told_and_the_reader_goes_on_when_it_is_back() -> None:
    store = ScriptedStore()
    async with reading(store=store, settings=LARGE) as world:
        await cold(world)
        offset = (await world.read_checked(0, 900)).next_offset
        down = refuse(UnavailableError)
        store.when("get_range", lambda _: True, down, times=None)
        store.when("get", lambda _: True, down, times=None)
        with pytest.raises(UnavailableError):
            await world.reader.read(world.log, 150, 900)
        store.scripts.clear()
        await world.read_all(offset, 900)
        await world.read_all(150, 900)


@in_simulation
async def test_what_was_read_ahead_is_served_without_waiting() -> None:
    async with reading(settings=LARGE) as world:
        await cold(world)
        offset = 0
        for _ in range(3):
            offset = (await world.read_checked(offset, 900)).next_offset
        await runtime.sleep(1)
        chunk = world.reader.read_now(world.log, offset, 500)
        assert isinstance(chunk, RecordChunk)
        world.check(chunk, offset, 500)


@in_simulation
async def test_a_reader_that_catches_up_leaves_no_cursor() -> None:
    settings: Settings = LARGE
    async with reading(settings=settings) as world:
        await cold(world)
        await world.send(*[50] * 5)
        await world.read_all(150, 900)
        assert len(world.reader.cold.cursors) == 0
        assert world.reader.cold.budget.used == 0
