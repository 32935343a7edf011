"""Readers that follow a WAL stream, and directories that they keep."""

from __future__ import annotations

from neve.log.wal.directories import SLICE_BYTES, DirectoryCache
from neve.log.wal.reader import TailObject, WalReader
from support.scripted_store import ScriptedStore, first, in_simulation
from support.wal_batches import offsets, texts
from support.wal_objects import (
    INCARNATION,
    KEYS,
    put_checkpoint,
    put_data,
    put_rollup,
    put_seal,
    rows_of,
    stream,
)

# --- following


@in_simulation
async def test_following_brings_what_is_new(store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    tail = await reader.tail()
    store.calls.clear()
    more = await reader.more(tail)
    assert more is not None
    assert (more.position, more.objects) == (3, ())
    assert store.asked("get_range") == 1
    for number in range(3, 40):
        await put_data(store, number)
    more = await reader.more(more, whole=True)
    assert more is not None
    assert (more.position, offsets(more)) == (40, list(range(3, 40)))


@in_simulation
async def test_following_ends_at_a_seal(store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    tail = await reader.tail()
    await put_data(store, 3)
    await put_seal(store, 4)
    more = await reader.more(tail)
    assert more is not None
    assert (more.position, more.sealed, offsets(more)) == (4, True, [3])
    last = await reader.more(more)
    assert last is not None
    assert (last.position, last.sealed, last.objects) == (4, True, ())


@in_simulation
async def test_a_follower_that_a_checkpoint_passed_resolves_again(store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    tail = await reader.tail()
    for number in range(3, 6):
        await put_data(store, number)
    await put_checkpoint(store, 5)
    assert await reader.more(tail) is None
    await put_seal(store, 3)  # a late seal in the trimmed range does not end the stream for it
    assert await reader.more(tail) is None


@in_simulation
async def test_a_follower_at_the_checkpoint_goes_on(store: ScriptedStore) -> None:
    reader = await stream(store, 3)
    tail = await reader.tail()
    await put_checkpoint(store, 3)
    await put_data(store, 3)
    more = await reader.more(tail)
    assert more is not None
    assert offsets(more) == [3]


@in_simulation
async def test_a_reader_that_is_slower_than_the_writer_comes_back(store: ScriptedStore) -> None:
    """For every number that it reads, another is there: it must not chase them for ever."""
    reader = await stream(store, 3)
    written = 3

    async def write_another() -> None:
        nonlocal written
        written += 1
        await put_data(store, written - 1)

    store.when(
        "get_range", lambda key: key.startswith(KEYS.prefix), first(write_another), times=500
    )
    tail = await reader.tail()
    assert 3 <= tail.position < 200
    assert offsets(tail) == list(range(tail.position))
    more = await reader.more(tail)
    assert more is not None
    assert tail.position < more.position < 400
    assert offsets(more) == list(range(tail.position, more.position))


# --- what was read before


@in_simulation
async def test_known_directories_are_not_asked_for_again(store: ScriptedStore) -> None:
    await stream(store, 10)
    known: DirectoryCache[TailObject] = DirectoryCache()
    first_read = await WalReader(store, INCARNATION, known=known).tail()
    await put_data(store, 10)
    store.calls.clear()
    second = await WalReader(store, INCARNATION, known=known).tail()
    assert offsets(first_read) == list(range(10))
    assert offsets(second) == list(range(11))
    asked = [call.key for call in store.calls if call.key.startswith(KEYS.prefix)]
    assert KEYS.number(10) in asked
    assert KEYS.number(9) not in asked


@in_simulation
async def test_known_directories_behind_a_checkpoint_do_not_count(store: ScriptedStore) -> None:
    await stream(store, 6)
    known: DirectoryCache[TailObject] = DirectoryCache()
    await WalReader(store, INCARNATION, known=known).tail()
    rollup = await put_rollup(store, 4, rows_of(0, 1, 2, 3))
    await put_checkpoint(store, 4, rollup)
    for number in range(4):
        await store.delete(KEYS.number(number))
    reader = WalReader(store, INCARNATION, known=known)
    tail = await reader.tail()
    assert (tail.checkpoint, tail.position) == (4, 6)
    assert await texts(reader, tail) == list(range(6))


@in_simulation
async def test_a_known_directory_of_an_object_that_is_gone_does_not_count(
    store: ScriptedStore,
) -> None:
    await stream(store, 6)
    known: DirectoryCache[TailObject] = DirectoryCache()
    await WalReader(store, INCARNATION, known=known).tail()
    await store.delete(KEYS.number(3))
    tail = await WalReader(store, INCARNATION, known=known).tail()
    assert (offsets(tail), tail.position) == ([0, 1, 2], 3)


@in_simulation
async def test_a_tail_larger_than_what_is_kept_is_not_asked_for_again(store: ScriptedStore) -> None:
    """Each look goes by the objects from the oldest on: its directory must not be what goes."""
    await stream(store, 40)
    known: DirectoryCache[TailObject] = DirectoryCache(40 * 2 * SLICE_BYTES + 500)
    reader = WalReader(store, INCARNATION, known=known)
    first_read = await reader.tail()
    assert all(item.data is not None for item in first_read.objects)
    store.calls.clear()
    second = await WalReader(store, INCARNATION, known=known).tail()
    assert offsets(second) == list(range(40))
    gets = [call.key for call in store.calls if call.operation.startswith("get")]
    assert [key for key in gets if KEYS.number_of(key) in range(40)] == []
    assert any(item.data is None for item in second.objects)
    assert await texts(reader, second) == list(range(40))


@in_simulation
async def test_a_look_keeps_no_more_bytes_of_objects_than_a_bound() -> None:
    store = ScriptedStore()
    await stream(store, 40)
    reader = WalReader(store, INCARNATION, data_bytes_max=1_000)
    tail = await reader.tail()
    kept = [item.data for item in tail.objects if item.data is not None]
    assert 0 < sum(map(len, kept)) <= 1_000
    assert await texts(reader, tail) == list(range(40))


def test_directories_are_kept_within_a_bound() -> None:
    kept: DirectoryCache[TailObject] = DirectoryCache(2_000)
    for number in range(20):
        data = memoryview(bytes(100))
        kept.put(str(number), TailObject(str(number), number, (), data))
        assert kept.bytes <= 2_000
    assert kept.get("0") is None
    latest = kept.get("19")
    assert latest is not None
    assert latest.data is None, "bytes go before directories"
    kept.put("19", TailObject("19", 19, (), memoryview(bytes(100))))
    assert kept.bytes <= 2_000
