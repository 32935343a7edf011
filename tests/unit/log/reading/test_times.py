"""Finding records by time: right to the record, wherever it lies, with few reads."""

from __future__ import annotations

import random

import pytest

from neve import runtime
from neve.errors import DamagedError
from neve.log.reading.leader.times import SCAN_BYTES, TimeSearch
from neve.records.compression import GZIP
from neve.records.reference import decode_batch
from neve.settings import FetchSettings
from support.log_reading import World, reading
from support.node_world import small_settings
from support.scripted_store import in_simulation


def truth(world: World) -> list[tuple[int, int]]:
    start = world.log.start_offset
    return [
        (record.offset, record.timestamp)
        for row in world.sent
        for record in decode_batch(row.data)
        if record.offset >= start
    ]


async def check_all(world: World) -> None:
    rows = truth(world)
    for timestamp in sorted({time + delta for _, time in rows for delta in (-1, 0, 1)}):
        wanted = next((row for row in rows if row[1] >= timestamp), None)
        assert await world.reader.offset_for_time(world.log, timestamp) == wanted
    greatest = max((time for _, time in rows), default=-1)
    found = await world.reader.max_timestamp(world.log)
    assert found == next((row for row in rows if row[1] == greatest), None)


async def fill(world: World, chance: random.Random, *, codec: int = 0) -> None:
    for _ in range(chance.randint(2, 8)):
        count = chance.randint(1, 6)
        records = [(chance.randint(0, 60), b"v" * chance.randint(0, 80)) for _ in range(count)]
        about = {} if chance.random() < 0.8 else {"log_append_time": chance.randint(0, 60)}
        await world.send_batch(records, codec=codec, **about)


@pytest.mark.parametrize("seed", range(6))
def test_any_time_is_found_in_a_log_of_any_shape(seed: int) -> None:
    async def check() -> None:
        chance = random.Random(seed)
        async with reading(settings=small_settings(segment_bytes=900)) as world:
            await check_all(world)
            for _ in range(5):
                await fill(world, chance, codec=chance.choice([0, 1]))
                await check_all(world)
                if chance.random() < 0.7:
                    await world.log.tier()
                if chance.random() < 0.3:
                    await world.node.rollups.roll_up()
                if chance.random() < 0.5:
                    world.forget()
                if chance.random() < 0.5:
                    start = world.log.start_offset
                    end = world.log.high_watermark
                    await world.delete_below(chance.randint(start, (start + 2 * end) // 3))
                await world.log.manifest.gather_runs(chance.choice([2, 1_000]))
                await check_all(world)

    runtime.simulate(check(), seed=seed)


@in_simulation
async def test_a_search_reads_the_stretch_that_has_it_and_no_other() -> None:
    async with reading(settings=small_settings(segment_bytes=2_000)) as world:
        for at in range(200):
            await world.send_batch([(at * 10, b"v" * 60)])
        while await world.log.tier():
            pass
        world.forget()
        world.store.calls.clear()
        assert await world.reader.offset_for_time(world.log, 1_234) == (124, 1_240)
        assert len(world.gets()) <= 3, "one index and one range"
        assert await world.reader.offset_for_time(world.log, 10_000) is None


@in_simulation
async def test_records_without_a_time_have_no_greatest() -> None:
    async with reading() as world:
        await world.send_batch([(-1, b"a"), (-1, b"b")])
        assert await world.reader.max_timestamp(world.log) is None


@in_simulation
async def test_a_damaged_index_costs_a_scan_and_damage_is_told() -> None:
    async with reading(settings=small_settings(segment_bytes=2_000)) as world:
        for at in range(60):
            await world.send_batch([(at * 10, b"v" * 60)])
        while await world.log.tier():
            pass
        world.forget()
        segment = (await world.log.manifest.segments(0, 0))[0]
        assert segment.index_key is not None
        await world.store.delete(segment.index_key)
        assert await world.reader.offset_for_time(world.log, 75) == (8, 80)
        data = bytearray(world.store.data(segment.key))
        data[300] ^= 1
        await world.store.put(segment.key, data)
        await runtime.sleep(60)
        with pytest.raises(DamagedError, match=segment.key):
            await world.reader.offset_for_time(world.log, 1)


async def test_searches_hold_no_more_than_their_share_of_batches_at_once() -> None:
    """Each holds one batch that is larger than expected; the share takes three of them."""
    large = 2 * SCAN_BYTES
    settings = FetchSettings(search_bytes=7 * SCAN_BYTES)
    async with reading(settings=small_settings(), fetch=settings) as world:
        noise = random.Random(1)
        values = [(at, noise.randbytes(large // 10)) for at in range(10)]
        await world.send_batch(values, codec=GZIP)
        held: list[int] = []
        decoded = TimeSearch._decoded

        async def watched(self: TimeSearch, *arguments: object) -> object:
            held.append(self.share.used)
            return await decoded(self, *arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TimeSearch, "_decoded", watched)
            searches = (world.reader.offset_for_time(world.log, 5) for _ in range(30))
            found = await runtime.gather(*searches)
    assert {row.offset for row in found if row is not None} == {5}
    assert len(held) == 30
    assert max(held) <= settings.search_bytes
