"""How a WAL writer checks that it still leads its stream."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    NeveError,
    UnavailableError,
)
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from support.scripted_store import ScriptedStore, changed, in_simulation, refuse, slow
from support.wal_batches import append
from support.wal_streams import KEYS, WalStream, no_task_is_left, turns


@in_simulation
async def test_an_idle_leader_makes_sure_with_one_get(
    store: ScriptedStore, stream: WalStream
) -> None:
    writer = stream.writer()
    await append(writer, 0).wait()
    store.calls.clear()
    assert await writer.still_leading()
    assert [(call.operation, call.key) for call in store.calls] == [("get_range", KEYS.number(1))]
    await writer.close()


@in_simulation
async def test_with_an_upload_in_flight_the_checkpoint_is_looked_at_too(
    store: ScriptedStore, stream: WalStream
) -> None:
    release = stream.hold_create(0)
    writer = stream.writer()
    append(writer, 0)
    await turns()
    store.calls.clear()
    assert await writer.still_leading()
    assert [call.operation for call in store.calls] == ["get_range", "list"]
    release.set()
    await writer.close()


@in_simulation
async def test_a_sealed_stream_is_not_led_and_asking_ends_nothing_else(stream: WalStream) -> None:
    writer = stream.writer()
    await append(writer, 0).wait()
    await stream.seal(1)
    assert not await writer.still_leading()
    await writer.abort()


@in_simulation
async def test_a_seal_beyond_our_own_undecided_number_is_seen(
    store: ScriptedStore, stream: WalStream
) -> None:
    """Our create landed and its answer hangs; a successor sealed the number behind it."""
    release = asyncio.Event()

    async def land_and_hang(call: object, work: object) -> None:
        await work()  # type: ignore[operator]
        await release.wait()

    store.when("create", KEYS.number(0), land_and_hang)
    writer = stream.writer()
    append(writer, 0)
    await turns()
    assert KEYS.number(0) in store.listed()
    assert await writer.still_leading()
    await stream.seal(1)
    assert not await writer.still_leading()
    release.set()
    await writer.abort()


@in_simulation
async def test_a_stream_rolled_up_past_our_undecided_number_is_not_led(
    store: ScriptedStore, stream: WalStream
) -> None:
    """Ours landed, was sealed behind, rolled up and trimmed: that it is absent proves nothing."""
    release = asyncio.Event()

    async def land_and_hang(call: object, work: object) -> None:
        await work()  # type: ignore[operator]
        await release.wait()

    store.when("create", KEYS.number(0), land_and_hang)
    writer = stream.writer()
    append(writer, 0)
    await turns()
    await stream.seal(1)
    await write_checkpoint(store, KEYS, 1, WalCheckpoint())
    await store.delete(KEYS.number(0))
    assert not await writer.still_leading()
    release.set()
    await writer.abort()


@in_simulation
async def test_a_look_ends_while_others_write_faster_than_it_reads(
    store: ScriptedStore, stream: WalStream
) -> None:
    store.when("get_range", lambda key: key.startswith(KEYS.prefix), slow(0.01), times=None)
    writer = stream.writer()
    written = 0

    async def write_on() -> None:
        nonlocal written
        while True:
            await append(writer, written).wait()
            written += 1
            await runtime.sleep(0.001)

    writing = runtime.spawn(write_on())
    await runtime.sleep(0.1)
    started = runtime.monotonic()
    async with runtime.deadline(10):
        assert await writer.still_leading()
    assert runtime.monotonic() - started < 0.1
    assert written > 50
    writing.cancel()
    await writer.close()


@in_simulation
async def test_one_look_serves_all_who_wait(store: ScriptedStore, stream: WalStream) -> None:
    store.latency = lambda: 0.1
    writer = stream.writer()
    await append(writer, 0).wait()
    store.calls.clear()
    answers = await runtime.gather(*(writer.still_leading() for _ in range(50)))
    assert answers == [True] * 50
    assert len(store.calls) == 1
    await writer.close()


@in_simulation
async def test_a_look_under_way_does_not_answer_a_later_question(
    store: ScriptedStore, stream: WalStream
) -> None:
    writer = stream.writer()
    await append(writer, 0).wait()

    async def answer_late(call: object, work: object) -> object:
        try:
            return await work()  # type: ignore[operator]
        finally:
            await runtime.sleep(1)

    store.when("get_range", KEYS.number(1), answer_late)
    early = runtime.spawn(writer.still_leading())
    await runtime.sleep(0.5)
    await stream.seal(1)
    late = runtime.spawn(writer.still_leading())
    assert await early is True
    assert await late is False
    await writer.abort()


@pytest.mark.parametrize("trouble", ["down", "torn"])
@in_simulation
async def test_a_look_that_fails_ends_no_stream(
    trouble: str, store: ScriptedStore, stream: WalStream
) -> None:
    """A store outage fences nobody."""
    writer = stream.writer()
    await append(writer, 0).wait()
    if trouble == "torn":
        await stream.seal(1)
    action = refuse(UnavailableError) if trouble == "down" else changed(lambda data: data[:3])
    store.when("get_range", KEYS.number(1), action, times=None)
    with pytest.raises(NeveError):
        await writer.still_leading()
    assert writer.ended is None
    store.scripts.clear()
    assert await writer.still_leading() is (trouble == "down")
    await writer.abort()


@in_simulation
async def test_one_torn_read_does_not_spoil_a_look(store: ScriptedStore, stream: WalStream) -> None:
    writer = stream.writer()
    await append(writer, 0).wait()
    await stream.seal(1)
    store.when("get_range", KEYS.number(1), changed(lambda data: data[:3]))
    assert not await writer.still_leading()
    await writer.abort()


@in_simulation
async def test_a_look_whose_asker_left_still_serves_the_others(
    store: ScriptedStore, stream: WalStream
) -> None:
    store.latency = lambda: 0.1
    writer = stream.writer()
    await append(writer, 0).wait()
    leaver = runtime.spawn(writer.still_leading())
    stayer = runtime.spawn(writer.still_leading())
    await runtime.sleep(0.05)
    leaver.cancel()
    assert await stayer
    await writer.close()


@in_simulation
async def test_an_ended_stream_is_not_led(store: ScriptedStore, stream: WalStream) -> None:
    writer = stream.writer()
    await writer.close()
    store.calls.clear()
    assert not await writer.still_leading()
    assert store.calls == []
    assert no_task_is_left()
