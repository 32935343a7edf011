"""The WAL reader over checkpoints and roll-ups, also while they move."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import DamagedError, NotFoundError
from neve.log.wal.checkpoint import (
    PartitionEnd,
    WalCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from support.scripted_store import ScriptedStore, first, in_simulation, refuse
from support.wal_batches import TOPIC, offsets, texts
from support.wal_objects import (
    KEYS,
    put_checkpoint,
    put_data,
    put_rollup,
    put_seal,
    rows_of,
    stream,
)


@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_a_stream_is_its_roll_ups_and_then_its_numbers(
    whole: bool, store: ScriptedStore
) -> None:
    reader = await stream(store, 6)
    rollups = [await put_rollup(store, 4, rows_of(*at)) for at in ((0, 1), (2, 3))]
    await put_checkpoint(store, 4, *rollups)
    for number in range(4):
        await store.delete(KEYS.number(number))
    tail = await reader.tail(whole=whole)
    assert (tail.checkpoint, tail.position) == (4, 6)
    assert [item.number for item in tail.objects] == [None, None, 4, 5]
    assert offsets(tail) == await texts(reader, tail) == list(range(6))
    assert tail.ends == {(TOPIC, 0): PartitionEnd(TOPIC.hex(), 0, 0, 4)}


@in_simulation
async def test_late_numbers_and_seals_below_the_checkpoint_decide_nothing(
    store: ScriptedStore,
) -> None:
    reader = await stream(store, 6)
    await put_checkpoint(store, 4)
    await put_seal(store, 1)
    await put_seal(store, 3)
    tail = await reader.tail()
    assert (tail.position, tail.sealed, offsets(tail)) == (6, False, [4, 5])


@pytest.mark.parametrize("seed", range(60))
def test_a_reader_under_a_moving_checkpoint_loses_nothing(seed: int) -> None:
    """Numbers are committed, rolled up and trimmed while tails are read, at every interleaving."""

    async def main() -> None:
        chance = runtime.chance()
        store = ScriptedStore(latency=lambda: chance.random() / 10)
        reader = await stream(store, 3)
        committed = 3

        async def owner() -> None:
            nonlocal committed
            done = 0
            for number in range(3, 25):
                await put_data(store, number)
                committed = number + 1
                if chance.random() < 0.3:
                    key = await put_rollup(store, committed, rows_of(*range(committed)))
                    await put_checkpoint(store, committed, key)
                    for old in range(done, committed):
                        await store.delete(KEYS.number(old))
                    for key in store.listed(KEYS.checkpoints):
                        if key < KEYS.checkpoint(committed):
                            await store.delete(key)
                    for key in store.listed(f"{KEYS.prefix}rollup/"):
                        if key < f"{KEYS.prefix}rollup/{committed:020d}":
                            await store.delete(key)
                    done = committed

        async def follow() -> None:
            for _ in range(10):
                before = committed
                tail = await reader.tail(whole=chance.random() < 0.5)
                assert offsets(tail) == list(range(tail.position))
                assert tail.position >= before

        await runtime.gather(owner(), follow(), follow())

    runtime.simulate(main(), seed=seed)


@in_simulation
async def test_a_roll_up_that_went_with_its_checkpoint_is_looked_up_again(
    store: ScriptedStore,
) -> None:
    reader = await stream(store, 4)
    old = await put_rollup(store, 2, rows_of(0, 1))
    await put_checkpoint(store, 2, old)

    async def replace() -> None:
        store.scripts.clear()
        await put_checkpoint(store, 4, await put_rollup(store, 4, rows_of(0, 1, 2, 3)))
        await store.delete(old)

    store.when("get_range", old, first(replace))
    assert offsets(await reader.tail()) == [0, 1, 2, 3]


@in_simulation
async def test_a_roll_up_that_is_named_and_gone_is_damage(store: ScriptedStore) -> None:
    reader = await stream(store, 4)
    key = await put_rollup(store, 2, rows_of(0, 1))
    await put_checkpoint(store, 2, key)
    await store.delete(key)
    with pytest.raises(DamagedError) as raised:
        await reader.tail()
    assert raised.value.key == key


@in_simulation
async def test_a_roll_up_made_for_another_checkpoint_is_damage(store: ScriptedStore) -> None:
    reader = await stream(store, 4)
    key = await put_rollup(store, 3, rows_of(0, 1))
    await put_checkpoint(store, 2, key)
    with pytest.raises(DamagedError):
        await reader.tail()


@in_simulation
async def test_damage_that_a_newer_checkpoint_covers_is_passed_over(store: ScriptedStore) -> None:
    reader = await stream(store, 4)
    await store.put(KEYS.number(1), b"rubbish")

    async def cover() -> None:
        store.scripts.clear()
        await put_checkpoint(store, 4, await put_rollup(store, 4, rows_of(0, 1, 2, 3)))

    store.when("get_range", KEYS.number(1), first(cover))
    assert offsets(await reader.tail()) == [0, 1, 2, 3]


@in_simulation
async def test_the_greatest_checkpoint_gone_is_damage(store: ScriptedStore) -> None:
    reader = await stream(store, 4)
    await put_checkpoint(store, 2)
    store.when("get", KEYS.checkpoint(2), refuse(NotFoundError))
    with pytest.raises(DamagedError, match=KEYS.checkpoint(2)):
        await reader.tail()


@in_simulation
async def test_a_checkpoint_is_won_once_and_known_again(store: ScriptedStore) -> None:
    mine = WalCheckpoint(("mine",))
    assert await write_checkpoint(store, KEYS, 3, mine)
    assert await write_checkpoint(store, KEYS, 3, mine)
    assert not await write_checkpoint(store, KEYS, 3, WalCheckpoint(("other",)))
    assert await read_checkpoint(store, KEYS, 3) == mine
    assert await read_checkpoint(store, KEYS, 4) is None
