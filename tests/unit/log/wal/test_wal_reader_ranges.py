"""Large WAL objects, which are read by their directory and by ranges."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import DamagedError, NotFoundError
from neve.log.wal import object as wal_object
from neve.log.wal import reader as reader_module
from neve.log.wal.reader import DIRECTORY_READ_BYTES, WalReader
from support.scripted_store import ScriptedStore, changed, in_simulation
from support.wal_batches import TOPIC, batch, texts
from support.wal_objects import (
    INCARNATION,
    KEYS,
    Rows,
    put_checkpoint,
    put_data,
    put_rollup,
    rows_of,
)


@in_simulation
async def test_a_large_object_is_read_by_its_directory_and_ranges(store: ScriptedStore) -> None:
    rows = [*rows_of(0, partition=0, size=100_000), *rows_of(7, partition=1, size=100_000)]
    await put_data(store, 0, rows)
    reader = WalReader(store, INCARNATION)
    tail = await reader.tail()
    assert tail.objects[0].data is None
    assert store.asked("get") == 0
    assert await texts(reader, tail, 1) == [7]
    ((item, entry),) = list(tail.of(TOPIC, 1))
    for change in (lambda data: data[:-1], lambda data: b"x" + data[1:]):
        store.when("get_range", item.key, changed(change), times=2)
        assert bytes(await reader.slice_data(item, entry)) == batch(7, 100_000)
        store.when("get_range", item.key, changed(change), times=3)
        with pytest.raises(DamagedError, match=item.key):
            await reader.slice_data(item, entry)


@in_simulation
async def test_one_that_is_too_large_to_be_read_whole_is_read_so_however_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its header and directory are checked before its size is believed."""
    monkeypatch.setattr(reader_module, "WHOLE_BYTES_MAX", 150_000)
    store = ScriptedStore()
    rows = [*rows_of(0, partition=0, size=100_000), *rows_of(7, partition=1, size=100_000)]
    await put_data(store, 0, rows)
    await put_data(store, 1, rows_of(1, partition=0, size=100_000))
    reader = WalReader(store, INCARNATION)
    tail = await reader.tail(whole=True)
    assert [item.data is None for item in tail.objects] == [True, False]
    assert await texts(reader, tail, 0) == [0, 1]


@in_simulation
async def test_a_slice_whose_object_went_is_not_found(store: ScriptedStore) -> None:
    await put_data(store, 0, rows_of(0, size=100_000))
    reader = WalReader(store, INCARNATION)
    tail = await reader.tail()
    await store.delete(KEYS.number(0))
    ((item, entry),) = list(tail.of(TOPIC, 0))
    with pytest.raises(NotFoundError):
        await reader.slice_data(item, entry)


def huge_directory() -> Rows:
    count = DIRECTORY_READ_BYTES // wal_object.ENTRY_BYTES + 10
    return [row for at in range(count) for row in rows_of(at, partition=at)]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_a_directory_beyond_the_first_read_is_read_too(torn: bool, whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        rows = huge_directory()
        await put_data(store, 0, rows)
        reader = WalReader(store, INCARNATION)
        if torn:
            # The first read is whole and says how much more is needed; the second one is torn.
            calls = 0

            async def tear_the_second(call: object, work: object) -> memoryview:
                nonlocal calls
                calls += 1
                data = await work()  # type: ignore[operator]
                return memoryview(bytes(data[:70_000])) if calls == 2 else data

            store.when("get_range", KEYS.number(0), tear_the_second, times=None)
        tail = await reader.tail(whole=whole)
        store.scripts.clear()
        assert len(tail.objects[0].slices) == len(rows)
        assert await texts(reader, tail, len(rows) - 1) == [len(rows) - 1]

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_torn_read_of_a_large_directory_is_read_again_wherever_it_lies(
    store: ScriptedStore,
) -> None:
    key = await put_rollup(store, 1, huge_directory())
    await put_checkpoint(store, 1, key)
    cuts = [70_000, 66_000, 65_600]

    async def tear(call: object, work: object) -> memoryview:
        data = await work()  # type: ignore[operator]
        is_second = len(data) > DIRECTORY_READ_BYTES
        return memoryview(bytes(data[: cuts.pop()])) if is_second and len(cuts) > 1 else data

    store.when("get_range", key, tear, times=None)
    tail = await WalReader(store, INCARNATION).tail()
    assert len(cuts) == 1
    assert len(tail.objects[0].slices) == len(huge_directory())


@in_simulation
async def test_a_directory_that_is_cut_short_is_damage(store: ScriptedStore) -> None:
    await put_data(store, 0, huge_directory())
    await store.put(KEYS.number(0), store.data(KEYS.number(0))[:66_000])
    with pytest.raises(DamagedError, match=KEYS.number(0)):
        await WalReader(store, INCARNATION).tail()
