"""Injected faults: each does what it says, and a seed replays."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    NotFoundError,
    StoreError,
    StoreFailedError,
    UnavailableError,
)
from neve.store.faults import Fault, Faults, FaultyStore, Latencies, Latency, Rule
from neve.store.memory import MemoryStore


def scripted(
    scenario: Callable[[FaultyStore, MemoryStore], Awaitable[Any]], *rules: Rule, seed: int = 1
) -> Any:
    async def run() -> Any:
        inner = MemoryStore()
        faulty = FaultyStore(inner, script=rules)
        try:
            return await scenario(faulty, inner)
        finally:
            await faulty.close()

    return runtime.simulate(run(), seed=seed)


def test_every_fault_has_its_probability() -> None:
    fields = {field.name for field in dataclasses.fields(Faults)}
    assert {fault.value for fault in Fault} == fields - {"late_ms_max", "after_delete_ms_max"}


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.SLOW_DOWN])
def test_a_failure_without_effect(fault: Fault) -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        for work in (
            faulty.create("k", b"x"),
            faulty.get("k"),
            faulty.list(""),
            faulty.put("k", b""),
        ):
            with pytest.raises(UnavailableError, match=fault.value):
                await work
        assert inner.bucket.keys == []
        assert faulty.counts[fault] == faulty.injected == faulty.calls == 4

    scripted(scenario, Rule(fault, times=4))


def test_a_failure_after_its_effect() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(UnavailableError):
            await faulty.create("k", b"x")
        assert await inner.get("k") == b"x"
        with pytest.raises(UnavailableError):
            await faulty.delete("k")
        assert inner.bucket.keys == []

    scripted(scenario, Rule(Fault.FAILS_AFTER_EFFECT, times=2))


@pytest.mark.parametrize(
    ("fault", "landed"), [(Fault.HANGS, False), (Fault.HANGS_AFTER_EFFECT, True)]
)
def test_hanging(fault: Fault, landed: bool) -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(TimeoutError):
            async with runtime.deadline(86_400):
                await faulty.create("k", b"x")
        assert (inner.bucket.keys == ["k"]) is landed

    scripted(scenario, Rule(fault))


def test_a_create_that_lands_late() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        buffer = bytearray(b"x")
        with pytest.raises(UnavailableError):
            await faulty.create("k", buffer)
        buffer[:] = b"y"
        assert inner.bucket.keys == []
        assert faulty.outstanding == 1
        await faulty.settle()
        assert runtime.monotonic() <= 5
        assert await inner.get("k") == b"x"

    scripted(scenario, Rule(Fault.LANDS_LATE))


def test_a_late_create_is_refused_by_an_earlier_one() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(UnavailableError):
            await faulty.create("k", b"late")
        await faulty.create("k", b"in time")
        await faulty.settle()
        assert await inner.get("k") == b"in time"

    scripted(scenario, Rule(Fault.LANDS_LATE))


def test_a_create_that_lands_after_its_number_was_deleted() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(UnavailableError):
            await faulty.create("k", b"from the dead")
        await faulty.create("k", b"winner")
        await runtime.sleep(20)
        assert await inner.get("k") == b"winner"
        await inner.delete("k")  # by somebody else, behind this wrapper's back
        await faulty.settle()
        assert await inner.get("k") == b"from the dead"

    scripted(scenario, Rule(Fault.LANDS_AFTER_DELETE))


def test_a_create_gives_up_waiting_for_a_delete() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        await inner.create("k", b"stays")
        with pytest.raises(UnavailableError):
            await faulty.create("k", b"never")
        await faulty.settle()
        assert 60 <= runtime.monotonic() <= 66
        assert await inner.get("k") == b"stays"

    scripted(scenario, Rule(Fault.LANDS_AFTER_DELETE))


def test_a_conflict_with_nothing_landed() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        await faulty.put("k", b"x")  # cannot befall a put
        with pytest.raises(ConflictError):
            await faulty.create("new", b"x")
        assert inner.bucket.keys == ["k"]

    scripted(scenario, Rule(Fault.CONFLICT))


@pytest.mark.parametrize(
    ("fault", "error", "landed"),
    [
        (Fault.CONFLICT_AFTER_EFFECT, ConflictError, True),
        (Fault.REFUSED, ExistsError, False),
        (Fault.DENIED, DeniedError, False),
        (Fault.FULL, StoreFailedError, False),
    ],
)
def test_a_create_that_is_answered_with_an_error(
    fault: Fault, error: type[Exception], landed: bool
) -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(error):
            await faulty.create("new", b"x")
        assert (inner.bucket.keys == ["new"]) is landed
        await faulty.create("other", b"x")

    scripted(scenario, Rule(fault))


def test_an_answer_that_comes_late() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        writing = runtime.spawn(faulty.create("k", b"x"))
        await runtime.sleep(0)
        await runtime.sleep(0)
        assert inner.bucket.keys == ["k"]
        assert not writing.done()
        await writing
        began = runtime.monotonic()
        assert await faulty.get("k") == b"x"
        assert 0 < runtime.monotonic() - began <= faulty.faults.late_ms_max / 1000

    scripted(scenario, Rule(Fault.ANSWERS_LATE, times=2))


def test_a_delete_that_lands_late() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> None:
        await faulty.create("k", b"x")
        with pytest.raises(UnavailableError):
            await faulty.delete("k")
        assert await faulty.get("k") == b"x"
        await faulty.settle()
        with pytest.raises(NotFoundError):
            await faulty.get("k")

    scripted(scenario, Rule(Fault.DELETE_LANDS_LATE))


def test_a_torn_read_is_cut_or_flipped() -> None:
    data = bytes(range(100))
    cut = flipped = 0
    for seed in range(40):

        async def scenario(faulty: FaultyStore, inner: MemoryStore) -> bytes:
            await faulty.put("k", data)
            torn = bytes(await faulty.get("k"))
            assert await faulty.get("k") == data
            return torn

        torn = scripted(scenario, Rule(Fault.TORN_READ), seed=seed)
        assert torn != data
        cut += len(torn) < len(data) and data.startswith(torn)
        flipped += len(torn) == len(data)
    assert cut + flipped == 40
    assert min(cut, flipped) > 5


def test_a_script_picks_its_calls() -> None:
    async def scenario(faulty: FaultyStore, inner: MemoryStore) -> list[str]:
        told = []
        for number in range(6):
            for folder in ("wal", "meta"):
                try:
                    await faulty.create(f"{folder}/{number}", b"x")
                except UnavailableError as error:
                    told.append(error.key)
        return told

    rules = [
        Rule(Fault.FAILS, operation="create", key_part="wal/", nth=3, times=2),
        Rule(Fault.FAILS, matches=lambda call: call.key == "meta/5"),
        Rule(Fault.FAILS, operation="get"),
    ]
    assert scripted(scenario, *rules) == ["wal/2", "wal/3", "meta/5"]


def test_close_ends_what_is_outstanding() -> None:
    async def scenario() -> None:
        inner = MemoryStore()
        faulty = FaultyStore(inner, script=[Rule(Fault.LANDS_LATE)])
        with pytest.raises(UnavailableError):
            await faulty.create("k", b"x")
        await faulty.close()
        assert faulty.outstanding == 0
        await runtime.sleep(100)
        assert inner.bucket.keys == []

    runtime.simulate(scenario(), seed=1)


EVERYTHING = Faults(
    fails=0.03,
    hangs=0.01,
    slow_down=0.03,
    fails_after_effect=0.05,
    hangs_after_effect=0.01,
    lands_late=0.05,
    lands_after_delete=0.05,
    conflict=0.05,
    conflict_after_effect=0.05,
    refused=0.05,
    answers_late=0.03,
    denied=0.02,
    full=0.03,
    delete_lands_late=0.2,
    torn_read=0.1,
)


async def chaos() -> tuple[list[str], dict[Fault, int], list[tuple[str, bytes]]]:
    inner = MemoryStore()
    latency = Latency(20, 200)
    faulty = FaultyStore(inner, EVERYTHING, latencies=Latencies.of(write=latency, read=latency))
    told: list[str] = []

    async def client(name: str) -> None:
        for step in range(60):
            key = f"{runtime.chance().randrange(20):020d}"
            calls = (
                faulty.create(key, name.encode()),
                faulty.get(key),
                faulty.delete(key),
                faulty.list(""),
            )
            chosen = runtime.chance().randrange(4)
            for number, call in enumerate(calls):
                if number != chosen:
                    call.close()
            try:
                async with runtime.deadline(1):
                    result = await calls[chosen]
                outcome = repr(result if not isinstance(result, memoryview) else bytes(result))
            except (StoreError, TimeoutError) as e:
                outcome = type(e).__name__
            told.append(f"{runtime.monotonic():.6f} {name}{step} {chosen} {key} {outcome}")

    await runtime.gather(*(client(name) for name in "abcdefgh"))
    await faulty.settle()
    left = [(key, inner.bucket.objects[key][0]) for key in inner.bucket.keys]
    await faulty.close()
    return told, faulty.counts, left


def test_a_seed_replays_exactly() -> None:
    first = runtime.simulate(chaos(), seed=7)
    assert runtime.simulate(chaos(), seed=7) == first
    assert runtime.simulate(chaos(), seed=8) != first
    assert all(count > 0 for count in first[1].values()), first[1]


def test_probabilities_are_kept() -> None:
    async def scenario() -> FaultyStore:
        faulty = FaultyStore(MemoryStore(), Faults(fails=0.1, slow_down=0.2))
        for _ in range(5000):
            try:
                await faulty.list("")
            except UnavailableError:
                continue
        return faulty

    faulty = runtime.simulate(scenario(), seed=1)
    assert 400 < faulty.counts[Fault.FAILS] < 600
    assert 900 < faulty.counts[Fault.SLOW_DOWN] < 1100


def test_latencies_have_the_median_and_the_tail_asked_for() -> None:
    async def scenario() -> list[float]:
        latency = Latency(median_ms=20, p99_ms=200)
        return sorted(latency.draw_seconds() for _ in range(20_000))

    drawn = runtime.simulate(scenario(), seed=1)
    assert drawn[10_000] == pytest.approx(0.020, rel=0.03)
    assert drawn[19_800] == pytest.approx(0.200, rel=0.1)
