"""Sealing: one end for everyone, and nothing committed at or above it, against a live writer."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DamagedError,
    DeniedError,
    ExistsError,
    FencedError,
    UnavailableError,
)
from neve.log.keys import wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from neve.log.wal.object import Kind
from neve.log.wal.reader import WalReader
from neve.log.wal.rollup import roll_up, trim
from neve.log.wal.seal import Sealer
from neve.log.wal.writer import WalWriter
from neve.settings import WalSettings
from support.scripted_store import ScriptedStore, first, hold, in_simulation, refuse, slow
from support.wal_batches import SMALL, Told, append, append_until_ended, batch, meta, offsets, texts

INCARNATION = 5
KEYS = wal_stream(INCARNATION)
WINDOW = SMALL.inflight_max


def sealer_on(store: ScriptedStore) -> Sealer:
    return Sealer(store, INCARNATION, window=WINDOW)


async def put_data(store: ScriptedStore, number: int) -> None:
    data = wal_object.encode(
        Kind.DATA,
        [(meta(number), [batch(number)])],
        incarnation=INCARNATION,
        number=number,
        author=b"owner...........",
        created_ms=0,
    ).data
    await store.put(KEYS.number(number), data)


def kind_at(store: ScriptedStore, number: int) -> Kind | None:
    key = KEYS.number(number)
    if key not in store.listed():
        return None
    header = wal_object.decode_header(store.data(key), key, incarnation=INCARNATION, number=number)
    return header.kind


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await runtime.sleep(0)


# --- one sealer


@in_simulation
async def test_an_empty_stream_ends_at_its_first_number() -> None:
    store = ScriptedStore()
    assert await sealer_on(store).seal() == 0
    assert kind_at(store, 0) is Kind.SEAL


@in_simulation
async def test_a_dead_stream_ends_at_its_first_missing_number() -> None:
    store = ScriptedStore()
    for number in (0, 1, 2, 4):
        await put_data(store, number)
    assert await sealer_on(store).seal() == 3
    tail = await WalReader(store, INCARNATION).tail()
    assert (tail.position, tail.sealed, offsets(tail)) == (3, True, [0, 1, 2])


@in_simulation
async def test_the_whole_window_is_sealed_at_once() -> None:
    store = ScriptedStore()
    release, reached = asyncio.Event(), asyncio.Event()
    await put_data(store, 0)
    store.when("create", KEYS.number(1), hold(release, reached))
    sealing = runtime.spawn(sealer_on(store).seal())
    await reached.wait()
    await turns()
    kinds = [kind_at(store, number) for number in range(1, 2 * WINDOW + 3)]
    assert kinds == [None] + [Kind.SEAL] * 2 * WINDOW + [None]
    assert not sealing.done(), "a seal above a missing number decides nothing"
    release.set()
    assert await sealing == 1


@in_simulation
async def test_sealing_again_finds_the_same_end_and_writes_nothing() -> None:
    store = ScriptedStore()
    await put_data(store, 0)
    assert await sealer_on(store).seal() == 1
    store.calls.clear()
    assert await sealer_on(store).seal() == 1
    assert store.asked("create") == 0


@pytest.mark.parametrize("error", [UnavailableError, ConflictError, ExistsError])
@pytest.mark.parametrize("after", [False, True])
def test_an_undecided_seal_is_tried_until_it_is_decided(
    error: type[Exception], after: bool
) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEYS.number(0), refuse(error, after=after), times=5)
        assert await sealer_on(store).seal() == 0
        assert kind_at(store, 0) is Kind.SEAL

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_number_taken_by_data_meanwhile_is_passed() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), first(lambda: put_data(store, 0)))
    assert await sealer_on(store).seal() == 1


@in_simulation
async def test_seals_beyond_need_not_land() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(1), hold(asyncio.Event()))
    store.when("create", KEYS.number(2), refuse(UnavailableError))
    assert await sealer_on(store).seal() == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_simulation
async def test_a_seal_beyond_that_is_refused_for_good_fails_nothing() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), slow(1))
    store.when("create", KEYS.number(2), refuse(DeniedError))
    assert await sealer_on(store).seal() == 0


@in_simulation
async def test_a_seal_that_cannot_be_written_is_told() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), refuse(DeniedError), times=None)
    with pytest.raises(DeniedError):
        await sealer_on(store).seal()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_simulation
async def test_seals_that_cannot_be_written_under_a_live_writer_are_told() -> None:
    """The writer goes on and on; so must not the sealer."""
    store = ScriptedStore(latency=lambda: 0.01)
    sealing = ScriptedStore(store.bucket, latency=lambda: 0.01)
    sealing.when("create", lambda _: True, refuse(DeniedError), times=None)
    writer = WalWriter(store, INCARNATION, SMALL)
    watchers = runtime.Tasks()
    appending = runtime.spawn(
        append_until_ended(writer, Told(), watchers, count=100_000, pause_seconds=0.006)
    )
    await runtime.sleep(1)
    with pytest.raises(DeniedError):
        async with runtime.deadline(1):
            await Sealer(sealing, INCARNATION, window=4).seal()
    await writer.abort()
    await asyncio.wait([appending])
    await watchers.join()


@in_simulation
async def test_a_damaged_number_is_told_by_its_key() -> None:
    store = ScriptedStore()
    await put_data(store, 0)
    await store.put(KEYS.number(1), b"rubbish" * 20)
    with pytest.raises(DamagedError, match=KEYS.number(1)):
        await sealer_on(store).seal()


# --- checkpoints


@in_simulation
async def test_sealing_starts_from_the_greatest_checkpoint() -> None:
    store = ScriptedStore()
    for number in range(5):
        await put_data(store, number)
    await write_checkpoint(store, KEYS, 3, WalCheckpoint())
    for number in range(3):
        await store.delete(KEYS.number(number))
    store.calls.clear()
    assert await sealer_on(store).seal() == 5
    assert store.asked("get_range", KEYS.number(2)) == 0


@in_simulation
async def test_a_seal_that_lands_where_a_number_was_trimmed_decides_nothing() -> None:
    """The owner commits, rolls up and trims just before our seal lands below its checkpoint."""
    store = ScriptedStore()

    async def owner_goes_on() -> None:
        for number in range(6):
            await put_data(store, number)
        await write_checkpoint(store, KEYS, 4, WalCheckpoint())
        for number in range(4):
            await store.delete(KEYS.number(number))

    store.when("create", KEYS.number(0), first(owner_goes_on))
    assert await sealer_on(store).seal() == 6
    assert kind_at(store, 0) is Kind.SEAL
    tail = await WalReader(store, INCARNATION).tail()
    assert (tail.position, tail.sealed, offsets(tail)) == (6, True, [4, 5])


# --- against a live writer


SEEDS = [*range(50), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(50, 300))]


@pytest.mark.parametrize("seed", SEEDS)
def test_against_a_live_pipelined_writer_all_agree(seed: int) -> None:
    async def main() -> None:
        chance = runtime.chance()
        store = ScriptedStore(latency=lambda: chance.expovariate(20))

        def sometimes(key: str) -> bool:
            return KEYS.number_of(key) is not None and chance.random() < 0.06

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, refuse(UnavailableError), times=None)
        store.when("create", sometimes, refuse(ConflictError), times=None)
        store.when("create", sometimes, store.late(chance.random() * 2), times=None)
        await race(store)

    runtime.simulate(main(), seed=seed)


async def race(store: ScriptedStore) -> None:
    """A writer at full speed with roll-ups, two sealers, and readers at the end."""
    chance = runtime.chance()
    told, watchers = Told(), runtime.Tasks()
    highest: list[int] = []
    writer = WalWriter(
        store, INCARNATION, SMALL, on_commit=lambda done: highest.append(done.number)
    )
    producing = runtime.spawn(
        append_until_ended(writer, told, watchers, count=400, pause_seconds=0.02)
    )
    rolling = runtime.spawn(roll_up_now_and_then(store, writer))

    async def seal_later() -> int:
        await runtime.sleep(chance.random() * 2)
        return await sealer_on(store).seal()

    ends = await runtime.gather(seal_later(), seal_later(), seal_later())
    tails = await runtime.gather(*(WalReader(store, INCARNATION).tail() for _ in range(2)))
    await runtime.sleep(60)  # everything late has landed by now
    await producing
    await rolling
    leading = writer.ended is None and await writer.still_leading()
    await watchers.join()
    reader = WalReader(store, INCARNATION)
    tails.append(await reader.tail())

    assert len(set(ends)) == 1
    (end,) = set(ends)
    assert {(tail.position, tail.sealed) for tail in tails} == {(end, True)}
    assert all(number < end for number in highest)
    assert highest == list(range(len(highest)))
    assert told.committed == list(range(len(told.committed)))
    assert not leading
    # Nothing was tiered, so the tail is all there ever was: what was told, and then the undecided.
    found = await texts(reader, tails[-1])
    assert found == list(range(len(found)))
    assert len(found) >= len(told.committed)
    assert all(isinstance(error, FencedError) for error in told.refused.values())
    await writer.abort()


async def roll_up_now_and_then(store: ScriptedStore, writer: WalWriter) -> None:
    """The owner's roll-ups, until its stream ends. It rolls up only what it knows committed."""
    reader = WalReader(store, INCARNATION)
    while writer.ended is None:
        await runtime.sleep(0.3 * runtime.chance().random())
        upto = writer.committed_end
        tail = await reader.tail()
        if tail.checkpoint < upto <= tail.position:
            await roll_up(store, reader, tail, upto, lambda *_: 0)
            await trim(store, reader)
        if runtime.monotonic() > 30:
            return


@pytest.mark.parametrize(
    ("window", "sealer_behind_seconds"), [(1, 0), (4, 0), (64, 0), (1, 1), (4, 1)]
)
def test_a_writer_that_never_stops_cannot_outrun_a_sealer(
    window: int, sealer_behind_seconds: int
) -> None:
    """Reading one number at a time, or sealing only one window, the sealer never gets ahead."""

    async def main() -> None:
        store = ScriptedStore(latency=lambda: runtime.chance().uniform(0.05, 0.15))
        store_of_sealer = ScriptedStore(
            store.bucket,
            latency=lambda: sealer_behind_seconds + runtime.chance().uniform(0.05, 0.15),
        )
        settings = WalSettings(object_bytes=4096, buffer_bytes=64 * 1024, inflight_max=window)
        writer = WalWriter(store, INCARNATION, settings)
        told, watchers = Told(), runtime.Tasks()
        producing = runtime.spawn(
            append_until_ended(writer, told, watchers, count=100_000, pause_seconds=0.001)
        )
        await runtime.sleep(3)
        started = runtime.monotonic()
        end = await Sealer(store_of_sealer, INCARNATION, window=window).seal()
        assert runtime.monotonic() - started < 5 + 30 * sealer_behind_seconds
        assert writer.committed_end <= end
        await producing
        assert writer.committed_end == end
        await writer.abort()
        await watchers.join()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_what_was_committed_before_the_seal_stays_and_the_rest_is_refused() -> None:
    store = ScriptedStore()
    writer = WalWriter(store, INCARNATION, SMALL)
    await append(writer, 0).wait()
    release = asyncio.Event()
    store.when("create", KEYS.number(1), hold(release))
    undecided = append(writer, 1)
    await turns()
    assert await sealer_on(store).seal() == 1
    release.set()
    with pytest.raises(FencedError):
        await undecided.wait()
    assert offsets(await WalReader(store, INCARNATION).tail()) == [0]
    await writer.abort()
