"""The WAL's reader: what is committed, no more and no less, whatever moves while it reads."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import DamagedError, NotFoundError, UnavailableError, UnsupportedError
from neve.log.keys import new_rollup_key, wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal import reader as reader_module
from neve.log.wal.checkpoint import (
    PartitionEnd,
    WalCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from neve.log.wal.directories import SLICE_BYTES, DirectoryCache
from neve.log.wal.object import Kind, SliceMeta
from neve.log.wal.reader import DIRECTORY_READ_BYTES, TailObject, WalReader
from support.scripted_store import ScriptedStore, changed, first, in_simulation, refuse
from support.wal_batches import TOPIC, batch, meta, offsets, texts

INCARNATION = 5
KEYS = wal_stream(INCARNATION)
Rows = list[tuple[SliceMeta, list[bytes]]]


def rows_of(*at: int, partition: int = 0, size: int = 100) -> Rows:
    """One slice that holds these offsets, a batch each."""
    span = meta(at[0], partition=partition)._replace(last_offset=at[-1], max_timestamp=at[-1])
    return [(span, [batch(offset, size) for offset in at])]


def encoded(kind: Kind, number: int, rows: Rows) -> bytes:
    return wal_object.encode(
        kind,
        rows,
        incarnation=INCARNATION,
        number=number,
        author=b"author..........",
        created_ms=0,
    ).data


async def put_data(store: ScriptedStore, number: int, rows: Rows | None = None) -> None:
    data = encoded(Kind.DATA, number, rows or rows_of(number))
    await store.put(KEYS.number(number), data)


async def put_seal(store: ScriptedStore, number: int) -> None:
    await store.put(KEYS.number(number), encoded(Kind.SEAL, number, []))


async def put_rollup(store: ScriptedStore, checkpoint: int, rows: Rows) -> str:
    key = new_rollup_key(KEYS, checkpoint)
    await store.put(key, encoded(Kind.ROLLUP, checkpoint, rows))
    return key


async def put_checkpoint(store: ScriptedStore, number: int, *rollups: str) -> None:
    ends = (PartitionEnd(TOPIC.hex(), 0, 0, number),)
    assert await write_checkpoint(store, KEYS, number, WalCheckpoint(rollups, ends))


async def stream(store: ScriptedStore, count: int) -> WalReader:
    for number in range(count):
        await put_data(store, number)
    return WalReader(store, INCARNATION)


# --- numbers in order


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_a_stream_is_read_to_its_first_missing_number(count: int, whole: bool) -> None:
    async def main() -> None:
        reader = await stream(ScriptedStore(), count)
        tail = await reader.tail(whole=whole)
        assert (tail.checkpoint, tail.position, tail.sealed) == (0, count, False)
        assert offsets(tail) == await texts(reader, tail) == list(range(count))

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("whole", [False, True])
def test_what_lies_beyond_a_missing_number_is_thrown_away(whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        reader = await stream(store, 10)
        await store.delete(KEYS.number(4))
        await put_seal(store, 8)
        tail = await reader.tail(whole=whole)
        assert (tail.position, tail.sealed) == (4, False)
        assert offsets(tail) == [0, 1, 2, 3]

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("whole", [False, True])
def test_a_seal_ends_a_stream(whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        reader = await stream(store, 10)
        await put_seal(store, 4)
        tail = await reader.tail(whole=whole)
        assert (tail.position, tail.sealed) == (4, True)
        assert offsets(tail) == [0, 1, 2, 3]

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("beyond", ["hole", "seal"])
@pytest.mark.parametrize("trouble", ["damaged", "newer", "unavailable"])
@pytest.mark.parametrize("whole", [False, True])
def test_trouble_beyond_a_hole_or_a_seal_is_nobody_s(
    beyond: str, trouble: str, whole: bool
) -> None:
    async def main() -> None:
        store = ScriptedStore()
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

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_header_on_the_way_is_told_by_its_key(whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        reader = await stream(store, 6)
        broken = bytearray(store.data(KEYS.number(3)))
        broken[10] ^= 1
        await store.put(KEYS.number(3), broken)
        with pytest.raises(DamagedError) as raised:
            await reader.tail(whole=whole)
        assert raised.value.key == KEYS.number(3)

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_slice_hurts_its_own_partition_only(whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        await put_data(store, 0, [*rows_of(0, partition=0), *rows_of(7, partition=1)])
        broken = bytearray(store.data(KEYS.number(0)))
        broken[-1] ^= 1
        await store.put(KEYS.number(0), broken)
        reader = WalReader(store, INCARNATION)
        tail = await reader.tail(whole=whole)
        assert await texts(reader, tail, 0) == [0]
        with pytest.raises(DamagedError, match=KEYS.number(0)):
            await texts(reader, tail, 1)

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("cut", [0, 5, 80, 150, -1])
def test_a_torn_read_is_read_again(cut: int, whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        reader = await stream(store, 3)
        for operation in ("get", "get_range"):
            store.when(operation, KEYS.number(1), changed(lambda data: data[:cut]), times=2)
        tail = await reader.tail(whole=whole)
        assert await texts(reader, tail) == [0, 1, 2]

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_number_copied_from_elsewhere_is_damage() -> None:
    store = ScriptedStore()
    reader = await stream(store, 2)
    await store.put(KEYS.number(2), store.data(KEYS.number(0)))
    with pytest.raises(DamagedError, match=KEYS.number(2)):
        await reader.tail()


@in_simulation
async def test_an_unavailable_store_is_told() -> None:
    store = ScriptedStore()
    reader = await stream(store, 2)
    store.when("get_range", KEYS.number(1), refuse(UnavailableError), times=None)
    with pytest.raises(UnavailableError):
        await reader.tail()


# --- slices by range


@in_simulation
async def test_a_large_object_is_read_by_its_directory_and_ranges() -> None:
    store = ScriptedStore()
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
async def test_a_slice_whose_object_went_is_not_found() -> None:
    store = ScriptedStore()
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
async def test_a_torn_read_of_a_large_directory_is_read_again_wherever_it_lies() -> None:
    store = ScriptedStore()
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
async def test_a_directory_that_is_cut_short_is_damage() -> None:
    store = ScriptedStore()
    await put_data(store, 0, huge_directory())
    await store.put(KEYS.number(0), store.data(KEYS.number(0))[:66_000])
    with pytest.raises(DamagedError, match=KEYS.number(0)):
        await WalReader(store, INCARNATION).tail()


# --- checkpoints and roll-ups


@pytest.mark.parametrize("whole", [False, True])
def test_a_stream_is_its_roll_ups_and_then_its_numbers(whole: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
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

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_late_numbers_and_seals_below_the_checkpoint_decide_nothing() -> None:
    store = ScriptedStore()
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
async def test_a_roll_up_that_went_with_its_checkpoint_is_looked_up_again() -> None:
    store = ScriptedStore()
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
async def test_a_roll_up_that_is_named_and_gone_is_damage() -> None:
    store = ScriptedStore()
    reader = await stream(store, 4)
    key = await put_rollup(store, 2, rows_of(0, 1))
    await put_checkpoint(store, 2, key)
    await store.delete(key)
    with pytest.raises(DamagedError) as raised:
        await reader.tail()
    assert raised.value.key == key


@in_simulation
async def test_a_roll_up_made_for_another_checkpoint_is_damage() -> None:
    store = ScriptedStore()
    reader = await stream(store, 4)
    key = await put_rollup(store, 3, rows_of(0, 1))
    await put_checkpoint(store, 2, key)
    with pytest.raises(DamagedError):
        await reader.tail()


@in_simulation
async def test_damage_that_a_newer_checkpoint_covers_is_passed_over() -> None:
    store = ScriptedStore()
    reader = await stream(store, 4)
    await store.put(KEYS.number(1), b"rubbish")

    async def cover() -> None:
        store.scripts.clear()
        await put_checkpoint(store, 4, await put_rollup(store, 4, rows_of(0, 1, 2, 3)))

    store.when("get_range", KEYS.number(1), first(cover))
    assert offsets(await reader.tail()) == [0, 1, 2, 3]


@in_simulation
async def test_the_greatest_checkpoint_gone_is_damage() -> None:
    store = ScriptedStore()
    reader = await stream(store, 4)
    await put_checkpoint(store, 2)
    store.when("get", KEYS.checkpoint(2), refuse(NotFoundError))
    with pytest.raises(DamagedError, match=KEYS.checkpoint(2)):
        await reader.tail()


@in_simulation
async def test_a_checkpoint_is_won_once_and_known_again() -> None:
    store = ScriptedStore()
    mine = WalCheckpoint(("mine",))
    assert await write_checkpoint(store, KEYS, 3, mine)
    assert await write_checkpoint(store, KEYS, 3, mine)
    assert not await write_checkpoint(store, KEYS, 3, WalCheckpoint(("other",)))
    assert await read_checkpoint(store, KEYS, 3) == mine
    assert await read_checkpoint(store, KEYS, 4) is None


# --- following


@in_simulation
async def test_following_brings_what_is_new() -> None:
    store = ScriptedStore()
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
async def test_following_ends_at_a_seal() -> None:
    store = ScriptedStore()
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
async def test_a_follower_that_a_checkpoint_passed_resolves_again() -> None:
    store = ScriptedStore()
    reader = await stream(store, 3)
    tail = await reader.tail()
    for number in range(3, 6):
        await put_data(store, number)
    await put_checkpoint(store, 5)
    assert await reader.more(tail) is None
    await put_seal(store, 3)  # a late seal in the trimmed range does not end the stream for it
    assert await reader.more(tail) is None


@in_simulation
async def test_a_follower_at_the_checkpoint_goes_on() -> None:
    store = ScriptedStore()
    reader = await stream(store, 3)
    tail = await reader.tail()
    await put_checkpoint(store, 3)
    await put_data(store, 3)
    more = await reader.more(tail)
    assert more is not None
    assert offsets(more) == [3]


@in_simulation
async def test_a_reader_that_is_slower_than_the_writer_comes_back() -> None:
    """For every number that it reads, another is there: it must not chase them for ever."""
    store = ScriptedStore()
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


# --- the end


@in_simulation
async def test_the_end_of_a_stream() -> None:
    store = ScriptedStore()
    reader = await stream(store, 3)
    assert await reader.end() is None
    await put_seal(store, 5)
    assert await reader.end() is None
    await put_seal(store, 3)
    assert await reader.end() == (3, 0)
    await put_checkpoint(store, 3, "wal/a-roll-up-that-is-gone")
    assert await reader.end() == (3, 3)


# --- what was read before


@in_simulation
async def test_known_directories_are_not_asked_for_again() -> None:
    store = ScriptedStore()
    await stream(store, 10)
    known: DirectoryCache[TailObject] = DirectoryCache()
    first_look = await WalReader(store, INCARNATION, known=known).tail()
    await put_data(store, 10)
    store.calls.clear()
    second = await WalReader(store, INCARNATION, known=known).tail()
    assert offsets(first_look) == list(range(10))
    assert offsets(second) == list(range(11))
    asked = [call.key for call in store.calls if call.key.startswith(KEYS.prefix)]
    assert KEYS.number(10) in asked
    assert KEYS.number(9) not in asked


@in_simulation
async def test_known_directories_behind_a_checkpoint_do_not_count() -> None:
    store = ScriptedStore()
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
async def test_a_known_directory_of_an_object_that_is_gone_does_not_count() -> None:
    store = ScriptedStore()
    await stream(store, 6)
    known: DirectoryCache[TailObject] = DirectoryCache()
    await WalReader(store, INCARNATION, known=known).tail()
    await store.delete(KEYS.number(3))
    tail = await WalReader(store, INCARNATION, known=known).tail()
    assert (offsets(tail), tail.position) == ([0, 1, 2], 3)


@in_simulation
async def test_a_tail_larger_than_what_is_kept_is_not_asked_for_again() -> None:
    """Each look goes by the objects from the oldest on: its directory must not be what goes."""
    store = ScriptedStore()
    await stream(store, 40)
    known: DirectoryCache[TailObject] = DirectoryCache(40 * 2 * SLICE_BYTES + 500)
    reader = WalReader(store, INCARNATION, known=known)
    first_look = await reader.tail()
    assert all(item.data is not None for item in first_look.objects)
    store.calls.clear()
    second = await WalReader(store, INCARNATION, known=known).tail()
    assert offsets(second) == list(range(40))
    gets = [call.key for call in store.calls if call.operation.startswith("get")]
    assert [key for key in gets if KEYS.number_of(key) in range(40)] == []
    assert any(item.data is None for item in second.objects)
    assert await texts(reader, second) == list(range(40))


@in_simulation
async def test_a_look_keeps_no_more_bytes_of_objects_than_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "LOOK_BYTES_MAX", 1_000)
    store = ScriptedStore()
    await stream(store, 40)
    reader = WalReader(store, INCARNATION)
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
