"""The WAL writer's bounded buffer, and closing and aborting it."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    ClosedError,
    FencedError,
    FullError,
    NeveError,
)
from support.scripted_store import ScriptedStore, hold, in_simulation
from support.wal_batches import SMALL, append
from support.wal_streams import KEYS, WalStream, no_task_is_left, outcome, turns

# --- the buffer's bound


@in_simulation
async def test_appends_go_on_to_the_bound_while_one_upload_hangs(stream: WalStream) -> None:
    release = stream.hold_create(1)
    writer = stream.writer()
    await append(writer, 0).wait()
    appended = 0
    while not writer.full:
        appended += 1
        append(writer, appended, size=1000)
        await turns(1)
    with pytest.raises(FullError, match=r"wal\.buffer\.bytes"):
        append(writer, appended + 1)
    assert appended == -(-SMALL.buffer_bytes // 1000)
    # What is committed is read as quickly as ever.
    started = runtime.monotonic()
    assert await stream.written() == [0]
    assert runtime.monotonic() == started
    waiting = runtime.spawn(writer.room())
    await runtime.sleep(60)
    assert not waiting.done()
    release.set()
    await waiting
    await writer.flush()
    assert await stream.written() == list(range(appended + 1))
    assert writer.buffered_bytes == 0
    await writer.close()


@in_simulation
async def test_room_is_there_at_once_where_there_is_room(stream: WalStream) -> None:
    writer = stream.writer()
    await writer.room()
    assert not writer.full
    await writer.close()


@in_simulation
async def test_everyone_who_waits_for_room_is_woken(stream: WalStream) -> None:
    release = stream.hold_create(0)
    writer = stream.writer()
    append(writer, 0, size=SMALL.buffer_bytes)
    waiting = [runtime.spawn(writer.room()) for _ in range(5)]
    await turns()
    release.set()
    await turns()
    assert all(task.done() for task in waiting)
    await writer.close()


@in_simulation
async def test_who_waits_for_room_is_told_that_the_stream_ended(stream: WalStream) -> None:
    stream.hold_create(0)
    writer = stream.writer()
    append(writer, 0, size=SMALL.buffer_bytes)
    waiting = runtime.spawn(writer.room())
    await turns()
    await writer.abort()
    with pytest.raises(ClosedError):
        await waiting


# --- closing


@in_simulation
async def test_closing_commits_what_was_appended(store: ScriptedStore, stream: WalStream) -> None:
    store.latency = lambda: 0.01
    writer = stream.writer(linger_ms=60_000)
    commits = [append(writer, offset) for offset in range(5)]
    await writer.close()
    assert [await outcome(commit) for commit in commits] == [None] * 5
    assert runtime.monotonic() < 1
    assert await stream.written() == list(range(5))
    with pytest.raises(ClosedError):
        append(writer, 5)
    assert no_task_is_left()


@in_simulation
async def test_closing_an_idle_writer(stream: WalStream) -> None:
    ended: list[NeveError] = []
    writer = stream.writer(on_end=ended.append)
    await writer.close()
    await writer.close()
    assert [type(error) for error in ended] == [ClosedError]
    assert no_task_is_left()


@in_simulation
async def test_an_abort_leaves_no_task_and_tells_everyone(
    store: ScriptedStore, stream: WalStream
) -> None:
    store.when("create", lambda key: True, hold(asyncio.Event()), times=None)
    store.when("get_range", lambda key: True, hold(asyncio.Event()), times=None)
    writer = stream.writer()
    commits = []
    for offset in range(10):
        commits.append(append(writer, offset))
        await turns()
    looking = runtime.spawn(writer.still_leading())
    await turns()
    await writer.abort()
    assert [await outcome(commit) for commit in commits] == [ClosedError] * 10
    assert await looking is False
    assert no_task_is_left()
    assert writer.buffered_bytes == 0


@in_simulation
async def test_an_abort_after_a_fence_tells_those_below_it_too(
    store: ScriptedStore, stream: WalStream
) -> None:
    await stream.seal(1)
    store.when("create", KEYS.number(0), hold(asyncio.Event()))
    writer = stream.writer()
    below = append(writer, 0)
    await turns()
    append(writer, 1)
    await turns()
    assert writer.ended is not None
    assert not below.done
    await writer.abort()
    assert await outcome(below) is ClosedError
    assert isinstance(writer.ended, FencedError)
    assert no_task_is_left()


@in_simulation
async def test_closing_a_fenced_writer_says_so(stream: WalStream) -> None:
    await stream.seal(0)
    writer = stream.writer()
    append(writer, 0)
    with pytest.raises(FencedError):
        await writer.close()
    assert no_task_is_left()


@in_simulation
async def test_a_waiter_that_is_cancelled_disturbs_nobody(
    store: ScriptedStore, stream: WalStream
) -> None:
    store.latency = lambda: 1.0
    writer = stream.writer()
    commit = append(writer, 0)
    waiting = runtime.spawn(commit.wait())
    await turns()
    waiting.cancel()
    await turns()
    await commit.wait()
    await writer.close()
