"""Roll-ups: the same records in fewer objects, whoever else is at it and wherever one dies."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DamagedError,
    ExistsError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from neve.log.keys import new_rollup_key, rollup_checkpoint, wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal import rollup as module
from neve.log.wal.checkpoint import PartitionEnd, read_checkpoint
from neve.log.wal.object import Kind, Slice
from neve.log.wal.reader import StreamTail, TailObject, WalReader
from neve.log.wal.rollup import TieredOffset, roll_up, trim
from support.scripted_store import KilledError, ScriptedStore, first, in_simulation, refuse
from support.wal_batches import TOPIC, batch, meta, offsets, texts, topic

INCARNATION = 5
KEYS = wal_stream(INCARNATION)
PARTITIONS = range(3)


def nothing_tiered(topic_id: bytes, partition: int) -> int | None:
    return 0


def tiered_upto(*offsets_by_partition: int | None) -> TieredOffset:
    return lambda _, partition: offsets_by_partition[partition]


async def put_data(store: ScriptedStore, number: int, size: int = 100, epoch: int = 0) -> None:
    """A number that holds two offsets of each partition: 2n and 2n + 1."""
    rows = []
    for partition in PARTITIONS:
        at = 2 * number
        span = meta(at, partition=partition, epoch=epoch)._replace(
            last_offset=at + 1, max_timestamp=1000 - number
        )
        rows.append((span, [batch(at, size), batch(at + 1, size)]))
    data = wal_object.encode(
        Kind.DATA,
        rows,
        incarnation=INCARNATION,
        number=number,
        author=b"owner...........",
        created_ms=0,
    ).data
    await store.put(KEYS.number(number), data)


async def put_seal(store: ScriptedStore, number: int) -> None:
    seal = wal_object.encode_seal(
        incarnation=INCARNATION, number=number, author=b"successor.......", created_ms=0
    )
    await store.put(KEYS.number(number), seal)


async def stream(count: int, size: int = 100) -> tuple[ScriptedStore, WalReader]:
    store = ScriptedStore()
    for number in range(count):
        await put_data(store, number, size)
    return store, WalReader(store, INCARNATION)


async def content(store: ScriptedStore) -> list[list[int]]:
    """Every offset of every partition, from the bytes."""
    reader = WalReader(store, INCARNATION)
    tail = await reader.tail()
    found = [await texts(reader, tail, partition) for partition in PARTITIONS]
    assert found == [offsets(tail, partition) for partition in PARTITIONS]
    return found


def rollups_in(store: ScriptedStore) -> list[str]:
    return [key for key in store.listed() if rollup_checkpoint(KEYS, key) is not None]


# --- what a roll-up holds


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [100, 40_000])
def test_a_roll_up_holds_what_is_not_tiered_and_nothing_else(size: int, whole: bool) -> None:
    async def main() -> None:
        store, reader = await stream(6, size)
        tail = await reader.tail(whole=whole)
        made = await roll_up(store, reader, tail, 4, tiered_upto(0, 5, 8))
        assert made is not None
        await trim(store, reader)
        assert store.listed() == sorted(
            [KEYS.number(4), KEYS.number(5), KEYS.checkpoint(4), *(item.key for item in made)]
        )
        # A slice that is tiered in part stays whole: readers drop what the manifest covers.
        assert await content(store) == [list(range(12)), list(range(4, 12)), list(range(8, 12))]
        tail = await reader.tail()
        assert {row.next for row in tail.ends.values()} == {8}

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_what_was_given_up_for_lost_is_left_out_and_never_read() -> None:
    store, reader = await stream(4)
    tail = await reader.tail()
    asked: list[Slice] = []

    async def read(item: TailObject, entry: Slice) -> memoryview:
        asked.append(entry)
        return await reader.slice_data(item, entry)

    def given_up(entry: Slice) -> bool:
        return entry.partition == 1 and entry.base_offset == 2

    await roll_up(store, reader, tail, 4, nothing_tiered, read=read, given_up=given_up)
    await trim(store, reader)
    assert await content(store) == [list(range(8)), [0, 1, 4, 5, 6, 7], list(range(8))]
    assert not any(map(given_up, asked))


@in_simulation
async def test_neighbours_of_one_partition_and_epoch_become_one_slice() -> None:
    store, reader = await stream(3)
    await put_data(store, 3, epoch=1)
    made = await roll_up(store, reader, await reader.tail(), 4, nothing_tiered)
    assert made is not None
    (item,) = made
    assert [
        (row.partition, row.leader_epoch, row.base_offset, row.last_offset, row.max_timestamp)
        for row in item.slices
    ] == [row for part in PARTITIONS for row in ((part, 0, 0, 5, 1000), (part, 1, 6, 7, 997))]


@in_simulation
async def test_a_roll_up_is_ordered_by_topic_and_partition() -> None:
    store = ScriptedStore()
    order = [(9, 1), (1, 10), (1, 2), (200, 0), (9, 0)]
    rows = [
        (meta(at, topic_id=topic(name), partition=partition), [batch(at)])
        for at, (name, partition) in enumerate(order)
    ]
    data = wal_object.encode(
        Kind.DATA, rows, incarnation=INCARNATION, number=0, author=b"a" * 16, created_ms=0
    ).data
    await store.put(KEYS.number(0), data)
    reader = WalReader(store, INCARNATION)
    made = await roll_up(store, reader, await reader.tail(), 1, nothing_tiered)
    assert made is not None
    names = [(int.from_bytes(row.topic_id, "big"), row.partition) for row in made[0].slices]
    assert names == sorted(order)
    for name, partition in order:
        at = order.index((name, partition))
        assert await texts(reader, await reader.tail(), partition, topic(name)) == [at]


@in_simulation
async def test_where_all_is_tiered_no_roll_up_is_written_and_offsets_are_kept() -> None:
    store, reader = await stream(3)
    made = await roll_up(store, reader, await reader.tail(), 3, tiered_upto(6, 6, 6))
    assert made == []
    await trim(store, reader)
    assert store.listed() == [KEYS.checkpoint(3)]
    tail = await reader.tail()
    assert tail.ends == {
        (TOPIC, partition): PartitionEnd(TOPIC.hex(), partition, 0, 6) for partition in PARTITIONS
    }


@in_simulation
async def test_next_offsets_outlive_many_checkpoints() -> None:
    store, reader = await stream(2)
    await roll_up(store, reader, await reader.tail(), 2, tiered_upto(4, 4, 4))
    for upto in (3, 4):
        data = wal_object.encode(
            Kind.DATA,
            [(meta(upto, partition=1, epoch=7), [batch(upto)])],
            incarnation=INCARNATION,
            number=upto - 1,
            author=b"a" * 16,
            created_ms=0,
        ).data
        await store.put(KEYS.number(upto - 1), data)
        await roll_up(store, reader, await reader.tail(), upto, tiered_upto(4, 0, 4))
    await trim(store, reader)
    ends = (await reader.tail()).ends
    assert [ends[TOPIC, part].next for part in PARTITIONS] == [4, 5, 4]
    assert ends[TOPIC, 1].epoch == 7


@in_simulation
async def test_a_partition_that_is_gone_is_dropped() -> None:
    store, reader = await stream(3)
    await roll_up(store, reader, await reader.tail(), 3, tiered_upto(0, None, 6))
    await trim(store, reader)
    assert await content(store) == [list(range(6)), [], []]
    assert sorted((await reader.tail()).ends) == [(TOPIC, 0), (TOPIC, 2)]


@in_simulation
async def test_it_is_asked_once_how_far_a_partition_is_tiered() -> None:
    """Two answers could keep a partition's records and forget its next offset."""
    store, reader = await stream(3)
    asked: list[int] = []

    def tiered(topic_id: bytes, partition: int) -> int | None:
        asked.append(partition)
        return 0 if asked.count(partition) == 1 else None

    await roll_up(store, reader, await reader.tail(), 3, tiered)
    assert sorted(asked) == list(PARTITIONS)
    assert len((await reader.tail()).ends) == 3


@in_simulation
async def test_above_the_bound_there_are_several_roll_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROLLUP_BYTES_MAX", 900)
    store, reader = await stream(6)
    made = await roll_up(store, reader, await reader.tail(), 6, nothing_tiered)
    assert made is not None
    assert len(made) > 3
    assert max(sum(row.length for row in item.slices) for item in made) <= 900
    await trim(store, reader)
    assert len(store.listed()) == len(made) + 1
    assert await content(store) == [list(range(12))] * 3


@in_simulation
async def test_a_slice_above_the_bound_is_a_roll_up_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROLLUP_BYTES_MAX", 10)
    store, reader = await stream(2)
    made = await roll_up(store, reader, await reader.tail(), 2, nothing_tiered)
    assert made is not None
    assert len(made) == 6
    assert await content(store) == [list(range(4))] * 3


@in_simulation
async def test_a_roll_up_is_rewritten_by_the_next_never_carried_over_by_name() -> None:
    store, reader = await stream(4)
    first_made = await roll_up(store, reader, await reader.tail(), 2, nothing_tiered)
    second_made = await roll_up(store, reader, await reader.tail(), 4, tiered_upto(0, 4, 0))
    assert first_made
    assert second_made
    assert not {item.key for item in first_made} & {item.key for item in second_made}
    assert [rollup_checkpoint(KEYS, item.key) for item in second_made] == [4]
    await trim(store, reader)
    assert rollups_in(store) == [item.key for item in second_made]
    assert await content(store) == [list(range(8)), list(range(4, 8)), list(range(8))]


@in_simulation
async def test_slices_at_hand_are_not_read_again() -> None:
    store, reader = await stream(3, size=40_000)
    tail = await reader.tail()

    async def at_hand(item: TailObject, entry: Slice) -> memoryview:
        return memoryview(store.data(item.key))[entry.position : entry.end]

    store.calls.clear()
    await roll_up(store, reader, tail, 3, nothing_tiered, read=at_hand)
    assert store.asked("get") + store.asked("get_range") == 0
    assert await content(store) == [list(range(6))] * 3


@in_simulation
async def test_an_object_is_read_once_however_many_partitions_it_holds() -> None:
    store, reader = await stream(4, size=40_000)
    tail = await reader.tail()
    store.calls.clear()
    await roll_up(store, reader, tail, 4, nothing_tiered)
    assert store.asked("get") + store.asked("get_range") == 4


# --- what is refused


@pytest.mark.parametrize("upto", [0, 5, 9])
def test_a_checkpoint_outside_the_tail_is_refused(upto: int) -> None:
    async def main() -> None:
        store, reader = await stream(4)
        with pytest.raises(InvalidError):
            await roll_up(store, reader, await reader.tail(), upto, nothing_tiered)

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_tail_that_lacks_numbers_is_refused() -> None:
    store, reader = await stream(4)
    tail = await reader.tail()
    lacking = StreamTail(
        tail.incarnation, 0, 4, False, tuple(tail.objects[:1] + tail.objects[2:]), tail.ends
    )
    with pytest.raises(InvalidError):
        await roll_up(store, reader, lacking, 4, nothing_tiered)


@in_simulation
async def test_what_was_read_on_is_no_tail_to_roll_up() -> None:
    """It begins where its reader was, so it lacks the roll-ups of its own checkpoint."""
    store, reader = await stream(4)
    await roll_up(store, reader, await reader.tail(), 4, nothing_tiered)
    tail = await reader.tail()
    await put_data(store, 4)
    more = await reader.more(tail)
    assert more is not None
    with pytest.raises(InvalidError):
        await roll_up(store, reader, more, 5, nothing_tiered)
    assert await content(store) == [list(range(10))] * 3


@in_simulation
async def test_a_damaged_slice_stops_a_roll_up_and_loses_nothing() -> None:
    store, reader = await stream(3, size=40_000)
    broken = bytearray(store.data(KEYS.number(1)))
    broken[-1] ^= 1
    await store.put(KEYS.number(1), broken)
    with pytest.raises(DamagedError, match=KEYS.number(1)):
        await roll_up(store, reader, await reader.tail(), 3, nothing_tiered)
    assert await greatest_checkpoint(store, KEYS) is None


# --- trimming


@in_simulation
async def test_a_trim_deletes_exactly_what_the_rules_allow() -> None:
    store, reader = await stream(6)
    for upto in (2, 4):
        await roll_up(store, reader, await reader.tail(), upto, nothing_tiered)
    (named,) = (await read_checkpoint(store, KEYS, 4)).rollups  # type: ignore[union-attr]
    strays = {made_for: new_rollup_key(KEYS, made_for) for made_for in (1, 3, 4, 5, 9)}
    for key in strays.values():
        await store.put(key, b"stray")
    await store.put(f"{KEYS.prefix}unknown", b"left alone")
    await trim(store, reader)
    assert store.listed() == sorted(
        [
            KEYS.number(4),
            KEYS.number(5),
            KEYS.checkpoint(4),
            named,
            strays[5],
            strays[9],
            f"{KEYS.prefix}unknown",
        ]
    )
    assert await trim(store, reader) == 0


@in_simulation
async def test_without_a_checkpoint_nothing_is_trimmed() -> None:
    store, reader = await stream(3)
    before = store.listed()
    assert await trim(store, reader) == 0
    assert store.listed() == before


@in_simulation
async def test_the_end_seal_stays_and_what_lies_above_it_goes() -> None:
    store, reader = await stream(3)
    for number in (3, 4, 6):
        await put_seal(store, number)
    await put_data(store, 5)
    await roll_up(store, reader, await reader.tail(), 3, nothing_tiered)
    await trim(store, reader, end=3)
    assert store.listed() == sorted([KEYS.number(3), KEYS.checkpoint(3), *rollups_in(store)])
    tail = await reader.tail()
    assert (tail.position, tail.sealed) == (3, True)


@in_simulation
async def test_where_the_end_is_not_known_nothing_above_the_checkpoint_goes() -> None:
    store, reader = await stream(3)
    await put_seal(store, 4)
    await roll_up(store, reader, await reader.tail(), 3, nothing_tiered)
    await trim(store, reader)
    assert KEYS.number(4) in store.listed()


@in_simulation
async def test_a_trim_whose_checkpoint_was_replaced_waits_for_the_next() -> None:
    store, reader = await stream(4)
    await roll_up(store, reader, await reader.tail(), 2, nothing_tiered)

    async def replace() -> None:
        store.scripts.clear()
        await roll_up(store, reader, await reader.tail(), 4, nothing_tiered)
        await trim(store, reader)

    store.when("get", KEYS.checkpoint(2), first(replace))
    assert await trim(store, reader) == 0
    assert await content(store) == [list(range(8))] * 3


# --- several at once


@in_simulation
async def test_the_second_of_two_janitors_is_told_and_leaves_only_waste() -> None:
    store, reader = await stream(4)
    tail = await reader.tail()
    mine = await roll_up(store, reader, tail, 4, nothing_tiered)
    theirs = await roll_up(store, WalReader(store, INCARNATION), tail, 4, tiered_upto(0, 2, 2))
    assert mine is not None
    assert theirs is None
    assert len(rollups_in(store)) == 2
    await trim(store, reader)
    assert rollups_in(store) == [item.key for item in mine]
    assert await content(store) == [list(range(8))] * 3


@in_simulation
async def test_a_janitor_whose_objects_another_trimmed_is_told_so() -> None:
    store, reader = await stream(4, size=40_000)
    tail = await reader.tail()
    await roll_up(store, reader, await reader.tail(), 4, nothing_tiered)
    await trim(store, reader)
    assert await roll_up(store, reader, tail, 3, nothing_tiered) is None
    assert await content(store) == [list(range(8))] * 3


@in_simulation
async def test_an_object_that_vanished_for_no_reason_is_not_passed_over() -> None:
    store, reader = await stream(4, size=40_000)
    tail = await reader.tail()
    await store.delete(KEYS.number(1))
    with pytest.raises((NotFoundError, DamagedError)):
        await roll_up(store, reader, tail, 4, nothing_tiered)
    assert await greatest_checkpoint(store, KEYS) is None


@pytest.mark.parametrize("seed", range(60))
def test_janitors_trims_and_readers_all_at_once(seed: int) -> None:
    async def main() -> None:
        chance = runtime.chance()
        store, _ = await stream(12, size=chance.choice([100, 40_000]))
        store.latency = lambda: chance.random() / 10
        await put_seal(store, 12)

        def sometimes(key: str) -> bool:
            return chance.random() < 0.05

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, store.late(chance.random()), times=None)

        async def janitor() -> None:
            reader = WalReader(store, INCARNATION)
            for _ in range(5):
                tail = await reader.tail(whole=chance.random() < 0.3)
                if tail.checkpoint == tail.position:
                    return
                upto = chance.randint(tail.checkpoint + 1, tail.position)
                try:
                    await roll_up(store, reader, tail, upto, nothing_tiered)
                    await trim(store, reader, end=12)
                except UnavailableError:
                    continue

        async def onlooker() -> None:
            reader = WalReader(store, INCARNATION)
            for _ in range(8):
                tail = await reader.tail(whole=True)
                assert (tail.position, tail.sealed) == (12, True)
                assert [offsets(tail, part) for part in PARTITIONS] == [list(range(24))] * 3

        await runtime.gather(janitor(), janitor(), janitor(), onlooker())
        await runtime.sleep(5)
        store.latency = None
        store.scripts.clear()
        reader = WalReader(store, INCARNATION)
        await trim(store, reader, end=12)
        assert await content(store) == [list(range(24))] * 3
        tail = await reader.tail()
        assert (tail.position, tail.sealed) == (12, True)
        for key in rollups_in(store):
            made_for = rollup_checkpoint(KEYS, key)
            assert made_for is not None
            named = key in {item.key for item in tail.objects}
            assert named or made_for > tail.checkpoint

    runtime.simulate(main(), seed=seed)


# --- dying in between


@pytest.mark.parametrize("torn_apart", [False, True])
def test_a_janitor_may_die_before_any_call(
    torn_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a first checkpoint behind it, so that roll-ups are rewritten and older ones deleted."""
    monkeypatch.setattr(module, "ROLLUP_BYTES_MAX", 900 if torn_apart else 10**6)

    async def prepared() -> ScriptedStore:
        store, reader = await stream(3)
        await roll_up(store, reader, await reader.tail(), 2, nothing_tiered)
        await trim(store, reader)
        for number in range(3, 6):
            await put_data(store, number)
        store.calls.clear()
        return store

    async def sweep(store: ScriptedStore) -> None:
        reader = WalReader(store, INCARNATION)
        await roll_up(store, reader, await reader.tail(), 5, nothing_tiered)
        await trim(store, reader)

    async def main() -> None:
        calls = None
        at = 0
        while calls is None or at < calls:
            store = await prepared()
            store.kill_at = at
            try:
                await sweep(store)
                calls = len(store.calls)
            except KilledError:
                pass
            store.kill_at = None
            assert await content(store) == [list(range(12))] * 3
            tail = await WalReader(store, INCARNATION).tail()
            if tail.checkpoint < 5:
                await sweep(store)
            await trim(store, WalReader(store, INCARNATION))
            assert await content(store) == [list(range(12))] * 3
            named = (await read_checkpoint(store, KEYS, 5)).rollups  # type: ignore[union-attr]
            assert rollups_in(store) == sorted(named)
            assert store.listed() == sorted([KEYS.number(5), KEYS.checkpoint(5), *named])
            at += 1
        assert at > 10

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("error", [UnavailableError, ConflictError, ExistsError])
@pytest.mark.parametrize("after", [False, True])
def test_a_roll_up_is_named_only_if_it_is_there(error: type[Exception], after: bool) -> None:
    async def main() -> None:
        store, reader = await stream(3)
        store.when("create", lambda key: "/rollup/" in key, refuse(error, after=after))
        assert await roll_up(store, reader, await reader.tail(), 3, nothing_tiered) is not None
        await trim(store, reader)
        assert await content(store) == [list(range(6))] * 3

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("after", [False, True])
def test_a_checkpoint_with_a_lost_answer_costs_nothing(after: bool) -> None:
    async def main() -> None:
        store, reader = await stream(3)
        tail = await reader.tail()
        store.when("create", KEYS.checkpoint(3), refuse(UnavailableError, after=after))
        with pytest.raises(UnavailableError):
            await roll_up(store, reader, tail, 3, nothing_tiered)
        assert await content(store) == [list(range(6))] * 3
        again = await roll_up(store, reader, tail, 3, nothing_tiered)
        assert (again is None) == after
        await trim(store, reader)
        assert await content(store) == [list(range(6))] * 3
        assert len(rollups_in(store)) == 1

    runtime.simulate(main(), seed=1)
