"""The WAL reader: it returns what is committed, no more and no less."""

from __future__ import annotations

import pytest

from neve.errors import DamagedError, UnavailableError, UnsupportedError
from neve.log.wal.reader import WalReader
from support.scripted_store import ScriptedStore, changed, in_simulation, refuse
from support.wal_batches import offsets, texts
from support.wal_objects import (
    INCARNATION,
    KEYS,
    put_checkpoint,
    put_data,
    put_seal,
    rows_of,
    stream,
)

# --- numbers in order


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
@in_simulation
async def test_a_stream_is_read_to_its_first_missing_number(count: int, whole: bool) -> None:
    reader = await stream(ScriptedStore(), count)
    tail = await reader.tail(whole=whole)
    assert (tail.checkpoint, tail.position, tail.sealed) == (0, count, False)
    assert offsets(tail) == await texts(reader, tail) == list(range(count))


@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_what_lies_beyond_a_missing_number_is_thrown_away(
    whole: bool, store: ScriptedStore
) -> None:
    reader = await stream(store, 10)
    await store.delete(KEYS.number(4))
    await put_seal(store, 8)
    tail = await reader.tail(whole=whole)
    assert (tail.position, tail.sealed) == (4, False)
    assert offsets(tail) == [0, 1, 2, 3]


@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_a_seal_ends_a_stream(whole: bool, store: ScriptedStore) -> None:
    reader = await stream(store, 10)
    await put_seal(store, 4)
    tail = await reader.tail(whole=whole)
    assert (tail.position, tail.sealed) == (4, True)
    assert offsets(tail) == [0, 1, 2, 3]


@pytest.mark.parametrize("beyond", ["hole", "seal"])
@pytest.mark.parametrize("trouble", ["damaged", "newer", "unavailable"])
@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_trouble_beyond_a_hole_or_a_seal_is_nobody_s(
    beyond: str, trouble: str, whole: bool, store: ScriptedStore
) -> None:
    reader = await stream(store, 6)
    if beyond == "hole":
        await store.delete(KEYS.number(2))
    else:
        await put_seal(store, 2)
    for operation in ("get", "get_range"):
        if trouble == "damaged":
            action = changed(lambda data: b"rubbish" * 20)
        elif trouble == "newer":
            action = refuse(lambda *_: UnsupportedError("newer"))  # type: ignore[arg-type]
        else:
            action = refuse(UnavailableError)
        store.when(operation, KEYS.number(4), action, times=None)
    tail = await reader.tail(whole=whole)
    assert (tail.position, offsets(tail)) == (2, [0, 1])


@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_a_damaged_header_on_the_way_is_told_by_its_key(
    whole: bool, store: ScriptedStore
) -> None:
    reader = await stream(store, 6)
    broken = bytearray(store.data(KEYS.number(3)))
    broken[10] ^= 1
    await store.put(KEYS.number(3), broken)
    with pytest.raises(DamagedError) as raised:
        await reader.tail(whole=whole)
    assert raised.value.key == KEYS.number(3)


@pytest.mark.parametrize("whole", [False, True])
@in_simulation
async def test_a_damaged_slice_hurts_its_own_partition_only(
    whole: bool, store: ScriptedStore
) -> None:
    await put_data(store, 0, [*rows_of(0, partition=0), *rows_of(7, partition=1)])
    broken = bytearray(store.data(KEYS.number(0)))
    broken[-1] ^= 1
    await store.put(KEYS.number(0), broken)
    reader = WalReader(store, INCARNATION)
    tail = await reader.tail(whole=whole)
    assert await texts(reader, tail, 0) == [0]
    with pytest.raises(DamagedError, match=KEYS.number(0)):
        await texts(reader, tail, 1)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("cut", [0, 5, 80, 150, -1])
@in_simulation
async def test_a_torn_read_is_read_again(cut: int, whole: bool, store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    for operation in ("get", "get_range"):
        store.when(operation, KEYS.number(1), changed(lambda data: data[:cut]), times=2)
    tail = await reader.tail(whole=whole)
    assert await texts(reader, tail) == [0, 1, 2]


@in_simulation
async def test_a_number_copied_from_elsewhere_is_damage(store: ScriptedStore) -> None:
    reader = await stream(store, 2)
    await store.put(KEYS.number(2), store.data(KEYS.number(0)))
    with pytest.raises(DamagedError, match=KEYS.number(2)):
        await reader.tail()


@in_simulation
async def test_an_unavailable_store_is_told(store: ScriptedStore) -> None:
    reader = await stream(store, 2)
    store.when("get_range", KEYS.number(1), refuse(UnavailableError), times=None)
    with pytest.raises(UnavailableError):
        await reader.tail()


# --- the end


@in_simulation
async def test_the_end_of_a_stream(store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    assert await reader.end() is None
    await put_seal(store, 5)
    assert await reader.end() is None
    await put_seal(store, 3)
    assert await reader.end() == (3, 0)
    await put_checkpoint(store, 3, "wal/a-roll-up-that-is-gone")
    assert await reader.end() == (3, 3)
