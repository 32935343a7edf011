"""Reading a led partition from wherever its records lie: the same bytes, whatever the seams."""

from __future__ import annotations

from typing import Any

import pytest

from neve import runtime
from neve.errors import ClosedError, DamagedError, LostRangeError, NotFoundError
from neve.log.manifest.records import Skip
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.log.reading.record_chunk import RecordChunk
from neve.store.wrapper import Call
from support.log_reading import World, reading
from support.node_world import small_settings
from support.scripted_store import (
    ScriptedStore,
    Work,
    changed,
    first,
    in_simulation,
    refuse,
)

SIZES = (30, 200, 10, 90, 400, 5, 60, 70, 300, 20, 20, 20)


async def mixed(world: World) -> None:
    """Segments, a roll-up, WAL objects out of memory, and the newest ones in memory."""
    for size in SIZES:
        await world.send_batch([(1_000, b"s" * size)] * 3)
    while await world.log.tier():
        pass
    await world.send(*SIZES)
    await world.node.rollups.roll_up()
    await world.send(*SIZES)
    world.forget()
    await world.send(*SIZES)


@in_simulation
async def test_every_offset_of_a_mixed_log_is_read_with_any_room() -> None:
    async with reading() as world:
        await mixed(world)
        assert {type(row.cached.number) for row in world.log.tail} == {int, type(None)}
        for max_bytes in (1, 150, 700, 5_000, 1 << 20):
            for offset in range(world.log.high_watermark + 1):
                await world.read_checked(offset, max_bytes)


@in_simulation
async def test_a_sequential_reader_passes_all_seams() -> None:
    for max_bytes in (1, 300, 2_500, 1 << 20):
        async with reading() as world:
            await mixed(world)
            chunks = await world.read_all(0, max_bytes)
            data = b"".join(part for chunk in chunks for part in chunk.parts)
            assert data == b"".join(row.data for row in world.sent)


@in_simulation
async def test_memory_is_read_without_waiting_and_nothing_else_is() -> None:
    async with reading() as world:
        await mixed(world)
        in_memory = [
            row.entry.base_offset for row in world.log.recent if row.cached.data is not None
        ]
        for offset in range(world.log.high_watermark):
            chunk = world.reader.read_now(world.log, offset, 500)
            assert (chunk is not None) == (offset >= in_memory[0])
            if chunk is not None:
                world.check(chunk, offset, 500)
        assert len(world.reader.cold.cursors) == 0


@in_simulation
async def test_a_chunk_goes_on_from_what_was_downloaded_into_memory() -> None:
    async with reading() as world:
        await world.send(100, 100)
        world.forget()
        await world.send(100, 100)
        await world.reader.read(world.log, 0, 1)
        chunk = await world.read_checked(1, 10_000)
        assert chunk.next_offset == 4


@in_simulation
async def test_offsets_outside_the_log_are_refused_and_its_end_is_empty() -> None:
    async with reading() as world:
        await world.send(*SIZES)
        await world.delete_below(4)
        for offset in (-1, 3, len(SIZES) + 1):
            with pytest.raises(OffsetOutOfRangeError) as refused:
                await world.reader.read(world.log, offset, 100)
            assert (refused.value.start, refused.value.end) == (4, len(SIZES))
            with pytest.raises(OffsetOutOfRangeError):
                world.reader.read_now(world.log, offset, 100)
        assert world.reader.read_now(world.log, len(SIZES), 100) == RecordChunk([], 0, 12, 12)


@in_simulation
async def test_a_batch_that_begins_below_the_logs_start_is_given_whole() -> None:
    async with reading() as world:
        await world.send_batch([(1, b"a" * 400), (2, b"b"), (3, b"c")])
        await world.delete_below(1)
        for cold in (False, True):
            if cold:
                world.forget()
            chunk = await world.reader.read(world.log, 1, 100)
            assert (chunk.first_offset, chunk.next_offset) == (0, 3)
            assert bytes(chunk.parts[0]) == world.sent[0].data


@in_simulation
async def test_a_slice_that_is_dropped_leaves_the_chunk_as_it_was() -> None:
    async with reading() as world:
        await world.send(100, 200)
        chunk = world.reader.read_now(world.log, 0, 10_000)
        assert chunk is not None
        world.forget()
        assert world.reader.read_now(world.log, 0, 10_000) is None
        world.check(chunk, 0, 10_000)


@in_simulation
async def test_what_moves_between_two_reads_does_not_show() -> None:
    """Tiered, rolled up, and collected, with a reader in the middle of it."""
    async with reading() as world:
        await world.send(*SIZES)
        world.forget()
        at = (await world.read_checked(0, 300)).next_offset
        await world.node.rollups.roll_up()
        at = (await world.read_checked(at, 300)).next_offset
        while await world.log.tier():
            await world.read_checked(at, 300)
        await world.send(*SIZES)
        await world.node.rollups.roll_up()
        await world.node.collect()
        await world.read_all(at, 300)


@in_simulation
async def test_what_moves_during_a_read_does_not_show() -> None:
    store = ScriptedStore()
    async with reading(store=store) as world:
        await world.send(*SIZES)
        world.forget()
        slices = [row.cached.key for row in world.log.tail]
        store.when("get_range", slices[0], first(world.node.rollups.roll_up))
        await world.read_checked(0, 100)
        assert not set(slices) & set(store.listed("wal/")), "the roll-up trimmed what it covers"
        rolled_up = world.log.tail[0].cached.key

        async def tier_and_roll_up() -> None:
            while await world.log.tier():
                pass
            await world.send(1)
            await world.node.rollups.roll_up()

        world.forget()
        await runtime.sleep(60)  # nothing is kept for the first reader any more
        store.when("get_range", rolled_up, first(tier_and_roll_up))
        await world.read_checked(4, 100)
        assert rolled_up not in store.listed("wal/")


@in_simulation
async def test_retention_that_passes_a_reader_is_told_as_out_of_range() -> None:
    store = ScriptedStore()
    async with reading(store=store) as world:
        await world.send(*SIZES)
        while await world.log.tier():
            pass
        world.forget()
        segment = (await world.log.manifest.segments(0, 0))[0]

        async def expire() -> None:
            await world.delete_below(segment.last + 1)
            await world.node.collect()

        store.when("get_range", segment.key, first(expire))
        with pytest.raises(OffsetOutOfRangeError) as refused:
            await world.reader.read(world.log, 0, 100)
        assert refused.value.start == segment.last + 1
        await world.read_all(segment.last + 1, 100)


async def tiered(world: World) -> None:
    await world.send(*SIZES)
    while await world.log.tier():
        pass
    world.forget()


@in_simulation
async def test_a_segment_that_is_listed_and_gone_is_damage_that_names_it() -> None:
    async with reading() as world:
        await tiered(world)
        segment = (await world.log.manifest.segments(0, 0))[0]
        await world.store.delete(segment.key)
        with pytest.raises(DamagedError, match="is listed but missing") as damage:
            await world.reader.read(world.log, 0, 100)
        assert damage.value.key == segment.key
        await world.read_all(segment.last + 1, 100)


@in_simulation
async def test_a_slice_that_is_gone_is_damage_that_names_it() -> None:
    async with reading() as world:
        await world.send(10, 20)
        world.forget()
        key = world.log.tail[0].cached.key
        world.store.when("get_range", key, refuse(NotFoundError), times=None)
        with pytest.raises((DamagedError, LostRangeError)):
            await world.reader.read(world.log, 0, 100)
        await world.read_checked(1, 100)


@pytest.mark.parametrize("trouble", ["gone", "damaged", "cut"])
def test_a_segment_without_its_index_is_read_all_the_same(trouble: str) -> None:
    async def check() -> None:
        async with reading() as world:
            await tiered(world)
            segment = (await world.log.manifest.segments(0, 0))[0]
            assert segment.index_key is not None
            if trouble == "gone":
                await world.store.delete(segment.index_key)
            else:
                data = bytearray(world.store.data(segment.index_key))
                data[20] ^= 1
                await world.store.put(segment.index_key, data if trouble == "damaged" else b"IDX")
            await world.read_all(0, 100)
            assert world.store.asked("get", segment.key) == 1, "read whole once, then in ranges"
            await world.read_all(0, 100)
            assert world.store.asked("get", segment.key) == 1

    runtime.simulate(check(), seed=1)


@in_simulation
async def test_an_index_that_contradicts_its_sound_segment_is_not_believed() -> None:
    store = ScriptedStore()
    async with reading(store=store) as world:
        await tiered(world)
        segment = (await world.log.manifest.segments(0, 0))[0]
        # Ranged reads come back wrong three times: the segment, read whole, is sound.
        store.when("get_range", segment.key, changed(lambda data: data[::-1]), times=3)
        await world.read_all(0, 100)
        assert store.asked("get", segment.key) == 1


@in_simulation
async def test_a_reader_that_is_late_with_the_same_wrong_index_reads_by_the_rebuilt_one() -> None:
    store = ScriptedStore()
    async with reading(store=store) as world:
        await tiered(world)
        segment = (await world.log.manifest.segments(0, 0))[0]
        asked = 0

        async def wrong(call: Call, work: Work) -> Any:
            nonlocal asked
            asked += 1
            number = asked
            if number == 1:  # the late reader's: it is answered when the index was rebuilt
                await runtime.sleep(5)
            data = await work()
            return data if number == 5 else memoryview(bytes(data)[::-1])

        # The late reader's range is wrong three times, and three times that of the other one.
        store.when("get_range", segment.key, wrong, times=7)
        late = runtime.spawn(world.read_checked(segment.last, 100))
        await runtime.sleep(1)
        await world.read_checked(segment.base, 100)
        assert asked == 5
        await late
        assert asked == 7
        assert store.asked("get", segment.key) == 1


@in_simulation
async def test_a_torn_read_is_read_again() -> None:
    store = ScriptedStore()
    async with reading(store=store) as world:
        await tiered(world)
        segment = (await world.log.manifest.segments(0, 0))[0]
        store.when("get_range", segment.key, changed(lambda data: data[:-1]), times=2)
        await world.read_all(0, 100)
        assert store.asked("get", segment.key) == 0


@in_simulation
async def test_damage_names_its_object_and_what_to_skip_and_skipping_gets_past_it() -> None:
    async with reading() as world:
        await tiered(world)
        rows = await world.log.manifest.segments()
        segment = rows[1]
        data = bytearray(world.store.data(segment.key))
        data[60] ^= 1
        await world.store.put(segment.key, data)
        with pytest.raises(DamagedError, match=f"--from {segment.base} --to") as damage:
            await world.reader.read(world.log, segment.base, 100)
        assert damage.value.key == segment.key
        assert "--topic t --partition 0" in str(damage.value)
        # What lies before and behind is read.
        await world.read_checked(0, 100)
        await world.read_all(segment.last + 1, 100)
        asked = world.store.asked("get", segment.key)
        with pytest.raises(DamagedError):
            await world.reader.read(world.log, segment.base, 100)
        assert world.store.asked("get", segment.key) == asked, "it is not read whole each time"
        skip = Skip(segment.base, segment.last, 0, "test")
        await world.log.manifest.change(lambda _: [skip])
        chunk = await world.reader.read(world.log, segment.base, 100)
        assert chunk.first_offset == segment.last + 1
        world.check(chunk, segment.last + 1, 100)


@in_simulation
async def test_skips_are_passed_over_in_memory_too_and_chunks_end_before_them() -> None:
    async with reading() as world:
        await world.send(*SIZES)
        await world.log.manifest.change(lambda _: [Skip(3, 5, 0, "a"), Skip(6, 6, 0, "b")])
        for cold in (False, True):
            if cold:
                world.forget()
            chunk = await world.reader.read(world.log, 0, 10_000)
            assert (chunk.first_offset, chunk.next_offset) == (0, 1 if cold else 3)
            chunk = await world.reader.read(world.log, 2, 10_000)
            assert (chunk.first_offset, chunk.next_offset) == (2, 3)
            for offset in (3, 4, 6):
                chunk = await world.reader.read(world.log, offset, 10_000)
                assert (chunk.first_offset, chunk.next_offset > 7) == (7, True)
        await world.log.manifest.change(lambda _: [Skip(10, 11, 0, "end")])
        assert (await world.reader.read(world.log, 10, 100)).parts == []
        world.check(await world.reader.read(world.log, 9, 1), 9, 1)


@in_simulation
async def test_a_closed_reader_reads_nothing() -> None:
    async with reading() as world:
        await world.send(10)
        await world.reader.aclose()
        with pytest.raises(ClosedError):
            await world.reader.read(world.log, 0, 100)


@in_simulation
async def test_a_recovered_tail_is_read_by_the_successor() -> None:
    store = ScriptedStore()
    settings = small_settings(cache_bytes=0)
    async with reading(store=store, settings=settings) as old:
        await mixed(old)
        await old.node.abort()
        async with reading(store=store, settings=settings, crashed=old) as new:
            assert new.node.incarnation > old.node.incarnation
            assert {row.cached.incarnation for row in new.log.tail} == {old.node.incarnation}
            chunks = await new.read_all(0, 400)
            data = b"".join(part for chunk in chunks for part in chunk.parts)
            assert data == b"".join(row.data for row in old.sent)
            await new.send(*SIZES)
            await new.read_all(0, 400)
