"""Whatever happened to a log, every offset of it is read with the bytes that were committed."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from neve import runtime
from neve.errors import DamagedError
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.store.faults import Faults, FaultyStore
from support.log_reading import World, reading, small_fetch
from support.node_world import small_settings
from support.scripted_store import ScriptedStore

STEPS = st.lists(
    st.sampled_from(["send", "send", "send", "tier", "roll_up", "forget", "delete", "collect"]),
    min_size=3,
    max_size=25,
)


async def take(world: World, step: str) -> None:
    chance = runtime.chance()
    if step == "send":
        for _ in range(chance.randint(1, 6)):
            count = chance.randint(1, 5)
            await world.send_batch([(1_000, b"v" * chance.randint(0, 250))] * count)
    elif step == "tier":
        await world.log.tier()
    elif step == "roll_up":
        await world.node.rollups.roll_up()
    elif step == "forget":
        world.forget()
    elif step == "collect":
        await world.node.collect()
    elif world.log.high_watermark:
        start = world.log.start_offset
        await world.delete_below(chance.randint(start, (start + world.log.high_watermark * 2) // 3))


async def read_on(world: World, max_bytes: int, laps: int) -> None:
    """Consume from the start to the end, `laps` times; resume at the start if it has moved."""
    offset = world.log.start_offset
    while laps:
        try:
            chunk = await world.read_checked(offset, max_bytes)
        except OffsetOutOfRangeError as refused:
            assert offset < world.log.start_offset
            offset = refused.start
            continue
        offset = chunk.next_offset
        if not chunk.parts:
            laps -= 1
            offset = world.log.start_offset
            await runtime.sleep(0.01)
        elif runtime.chance().random() < 0.3:
            await runtime.sleep(0.005)


async def read_past_damage(world: World, max_bytes: int) -> None:
    """Consume to the end; fetch again after an error, as clients do."""
    offset = world.log.start_offset
    errors = 0
    while offset < world.log.high_watermark:
        try:
            offset = (await world.read_checked(offset, max_bytes)).next_offset
        except DamagedError:  # the reader gives up after some attempts
            errors += 1
            assert errors < 20


@settings(max_examples=30, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_every_offset_of_any_log_is_read_right(steps: list[str], seed: int) -> None:
    async def check() -> None:
        async with reading(settings=small_settings(segment_bytes=1_500)) as world:
            for step in steps:
                await take(world, step)
            chance = runtime.chance()
            for offset in range(world.log.start_offset, world.log.high_watermark + 1):
                await world.read_checked(offset, chance.choice([1, 200, 1_000, 1 << 20]))

    runtime.simulate(check(), seed=seed)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
@example(steps=["send", "tier", "roll_up"], seed=952)  # a reader that waited for its own bytes
def test_consumers_read_right_while_everything_moves(steps: list[str], seed: int) -> None:
    async def check() -> None:
        store = ScriptedStore(latency=lambda: runtime.chance().random() * 0.005)
        fetch = small_fetch(catchup_bytes=4_000, catchup_concurrency=2)
        wide = small_settings(segment_bytes=1_500, cache_bytes=3_000)
        async with reading(store=store, settings=wide, fetch=fetch) as world:
            await take(world, "send")

            async def change() -> None:
                for step in steps:
                    await take(world, step)
                    await runtime.sleep(runtime.chance().random() * 0.02)

            await runtime.gather(
                change(), read_on(world, 300, 3), read_on(world, 900, 3), read_on(world, 1, 2)
            )

    runtime.simulate(check(), seed=seed)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
@example(steps=["send"] * 6 + ["tier"], seed=110)  # a range that is torn in every attempt
def test_torn_reads_never_show(steps: list[str], seed: int) -> None:
    async def check() -> None:
        store = ScriptedStore()
        torn = FaultyStore(store, Faults(torn_read=0.1))
        async with reading(store=store, reads=torn) as world:
            for step in steps:
                await take(world, step)
            world.forget()
            await read_past_damage(world, 500)

    runtime.simulate(check(), seed=seed)
