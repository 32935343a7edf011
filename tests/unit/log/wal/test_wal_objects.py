"""How the WAL writer groups appends into objects: join, linger, flush and size."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    ClosedError,
)
from neve.log.wal.writer import WalWriter
from support.scripted_store import ScriptedStore, in_simulation
from support.wal_batches import SMALL, append, offsets
from support.wal_streams import KEYS, WalStream, no_task_is_left, outcome, turns


def joining(stream: WalStream, join_bytes: int = 1000) -> tuple[asyncio.Event, WalWriter]:
    """Return a writer whose first upload waits for the event."""
    return stream.hold_create(0), stream.writer(join_bytes=join_bytes)


@in_simulation
async def test_many_appends_are_one_object(store: ScriptedStore, stream: WalStream) -> None:
    writer = stream.writer()
    commits = [append(writer, offset, partition=offset % 3) for offset in range(30)]
    for commit in commits:
        await commit.wait()
    assert store.asked("create") == 1
    assert {commit.number for commit in commits} == {0}
    tail = await stream.reader().tail()
    assert [offsets(tail, partition) for partition in range(3)] == [
        list(range(28)),
        list(range(1, 29)),
        list(range(2, 30)),
    ]
    await writer.close()


@in_simulation
async def test_without_a_linger_an_append_leaves_at_once(stream: WalStream) -> None:
    writer = stream.writer()
    started = runtime.monotonic()
    await append(writer, 0).wait()
    assert runtime.monotonic() == started
    await writer.close()


@in_simulation
async def test_small_appends_join_while_an_upload_is_under_way(
    store: ScriptedStore, stream: WalStream
) -> None:
    release, writer = joining(stream)
    first = append(writer, 0)
    await turns()
    joined = []
    for offset in range(1, 6):
        joined.append(append(writer, offset))
        await turns()
    assert store.asked("create") == 1
    release.set()
    for commit in (first, *joined):
        await commit.wait()
    assert [commit.number for commit in (first, *joined)] == [0, 1, 1, 1, 1, 1]
    assert await stream.written() == list(range(6))
    await writer.close()


@in_simulation
async def test_what_has_grown_enough_flies_beside_the_others(
    store: ScriptedStore, stream: WalStream
) -> None:
    release, writer = joining(stream)
    started = []
    for offset, size in enumerate((100, 400, 600, 1999, 1)):
        append(writer, offset, size=size)
        await turns()
        started.append(store.asked("create"))
    assert started == [1, 1, 2, 2, 3]
    release.set()
    await writer.flush()
    assert await stream.written() == list(range(5))
    await writer.close()


@in_simulation
async def test_an_object_that_is_large_enough_waits_for_nobody_to_join(
    store: ScriptedStore, stream: WalStream
) -> None:
    release, writer = joining(stream, join_bytes=100 * SMALL.object_bytes)
    append(writer, 0)
    await turns()
    for offset in range(1, 5):
        append(writer, offset, size=SMALL.object_bytes // 4)
        await turns()
    assert store.asked("create") == 2
    release.set()
    await writer.flush()
    assert await stream.written() == list(range(5))
    await writer.close()


@in_simulation
async def test_a_flush_does_not_wait_for_more_to_join(
    store: ScriptedStore, stream: WalStream
) -> None:
    release, writer = joining(stream)
    append(writer, 0)
    await turns()
    append(writer, 1)
    await turns()
    flushing = runtime.spawn(writer.flush())
    await turns()
    assert store.asked("create") == 2
    release.set()
    await flushing
    await writer.close()


@in_simulation
async def test_what_waits_to_join_is_refused_with_the_stream(stream: WalStream) -> None:
    _, writer = joining(stream)
    append(writer, 0)
    await turns()
    waiting = append(writer, 1)
    await turns()
    await writer.abort()
    assert await outcome(waiting) is ClosedError
    assert no_task_is_left()


@in_simulation
async def test_a_linger_waits_for_more(store: ScriptedStore, stream: WalStream) -> None:
    writer = stream.writer(linger_ms=100)
    first = append(writer, 0)
    await runtime.sleep(0.06)
    second = append(writer, 1)
    assert store.asked("create") == 0
    await first.wait()
    assert runtime.monotonic() == pytest.approx(0.1)
    assert second.number == first.number == 0
    third = append(writer, 2)
    await third.wait()
    assert runtime.monotonic() == pytest.approx(0.2)
    await writer.close()


@in_simulation
async def test_an_object_that_is_large_enough_does_not_linger(stream: WalStream) -> None:
    writer = stream.writer(linger_ms=100)
    await asyncio.gather(*(append(writer, at, size=1024).wait() for at in range(4)))
    assert runtime.monotonic() == pytest.approx(0, abs=0.01)
    late = append(writer, 4)
    await late.wait()
    assert runtime.monotonic() == pytest.approx(0.1, abs=0.01)
    await writer.close()


@pytest.mark.parametrize("linger_ms", [0, 100])
@in_simulation
async def test_no_object_grows_past_its_size_however_much_is_appended_at_once(
    linger_ms: int, store: ScriptedStore, stream: WalStream
) -> None:
    writer = stream.writer(linger_ms=linger_ms)
    commits = [append(writer, offset, size=1024) for offset in range(40)]
    for commit in commits:
        await commit.wait()
    sizes = [len(store.data(key)) for key in store.listed(KEYS.prefix)]
    assert len(sizes) == 10
    assert max(sizes) < 4096 + 1024
    assert await stream.written() == list(range(40))
    await writer.close()


@in_simulation
async def test_no_object_grows_past_its_size_while_the_window_is_full(
    store: ScriptedStore, stream: WalStream
) -> None:
    release = stream.hold_create(0)
    writer = stream.writer()
    for offset in range(40):
        append(writer, offset, size=1024)
        await turns()
    release.set()
    await writer.flush()
    assert max(len(store.data(key)) for key in store.listed(KEYS.prefix)) < 4096 + 1024
    assert await stream.written() == list(range(40))
    await writer.close()


@in_simulation
async def test_an_append_never_waits_and_never_touches_the_store(
    store: ScriptedStore, stream: WalStream
) -> None:
    writer = stream.writer()
    append(writer, 0)
    assert store.calls == []
    await writer.close()


@in_simulation
async def test_slices_of_one_partition_are_joined_and_epochs_kept_apart(stream: WalStream) -> None:
    writer = stream.writer()
    append(writer, 0, epoch=1)
    append(writer, 1, epoch=1)
    append(writer, 2, epoch=2)
    await writer.flush()
    (item,) = (await stream.reader().tail()).objects
    assert [(row.leader_epoch, row.base_offset, row.last_offset) for row in item.slices] == [
        (1, 0, 1),
        (2, 2, 2),
    ]
    await writer.close()
