"""The end of a WAL stream: fenced by a seal, by another writer's data, or by an error."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    ClosedError,
    DeniedError,
    FencedError,
    InvalidError,
    NeveError,
    StoreFailedError,
    UnavailableError,
)
from neve.log.wal.object import SliceMeta
from neve.log.wal.writer import CommittedObject
from neve.store.wrapper import Call
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse, slow
from support.wal_batches import TOPIC, append, batch, meta
from support.wal_streams import KEYS, WalStream, outcome, turns


@in_simulation
async def test_a_seal_refuses_everything_from_there_on(
    store: ScriptedStore, stream: WalStream
) -> None:
    ended: list[NeveError] = []
    writer = stream.writer(on_end=ended.append)
    await append(writer, 0).wait()
    await stream.seal(1)
    store.when("create", KEYS.number(1), slow(1))
    store.when("create", KEYS.number(3), hold(asyncio.Event()))
    commits = []
    for offset in range(1, 9):
        commits.append(append(writer, offset))
        await turns()
    await runtime.sleep(2)
    assert [await outcome(commit) for commit in commits] == [FencedError] * 8
    assert len(ended) == 1
    assert isinstance(writer.ended, FencedError)
    assert writer.committed_end == 1
    assert writer.buffered_bytes == 0
    with pytest.raises(FencedError):
        append(writer, 9)
    with pytest.raises(FencedError):
        await writer.room()
    await writer.abort()
    assert await stream.written() == [0]


@in_simulation
async def test_numbers_below_a_seal_may_still_commit(
    store: ScriptedStore, stream: WalStream
) -> None:
    await stream.seal(2)
    store.when("create", KEYS.number(0), slow(1))
    store.when("create", KEYS.number(1), slow(2))
    writer = stream.writer()
    store.when("create", KEYS.number(2), slow(0.5))
    commits = []
    for offset in range(4):
        commits.append(append(writer, offset))
        await turns()
    await runtime.sleep(0.7)
    assert [commit.done for commit in commits] == [False, False, True, True]
    await runtime.sleep(3)
    assert [await outcome(commit) for commit in commits] == [None, None, FencedError, FencedError]
    assert writer.committed_end == 2
    assert writer.buffered_bytes == 0
    await writer.abort()


@in_simulation
async def test_data_of_another_process_under_our_number_fences_us(stream: WalStream) -> None:
    other = stream.writer()
    await append(other, 0).wait()
    writer = stream.writer()
    commit = append(writer, 0)
    await turns()
    assert await outcome(commit) is FencedError
    await writer.abort()
    await other.close()


@pytest.mark.parametrize("error", [DeniedError, StoreFailedError])
@pytest.mark.parametrize("operation", ["create", "get_range"])
@in_simulation
async def test_what_cannot_pass_ends_the_stream_and_fails_every_batch(
    error: type[Exception], operation: str, store: ScriptedStore, stream: WalStream
) -> None:
    if operation == "get_range":
        store.when("create", KEYS.number(1), refuse(UnavailableError, after=True))

    async def refuse_late(call: Call, work: object) -> None:
        await runtime.sleep(0.5)
        raise error(call.key, "scripted")

    store.when(operation, KEYS.number(1), refuse_late, times=None)
    ended: list[NeveError] = []
    writer = stream.writer(on_end=ended.append)
    commits = []
    for offset in range(9):
        commits.append(append(writer, offset))
        await turns(2)
    await runtime.sleep(1)
    assert [await outcome(commit) for commit in commits] == [None] + [FencedError] * 8
    assert isinstance(writer.ended, FencedError)
    assert isinstance(writer.ended.__cause__, error)
    assert len(ended) == 1
    assert writer.buffered_bytes == 0
    await writer.abort()


@in_simulation
async def test_nothing_commits_past_a_failure_even_if_it_is_durable(
    store: ScriptedStore, stream: WalStream
) -> None:

    async def refuse_late(call: object, work: object) -> None:
        await runtime.sleep(1)
        raise DeniedError(KEYS.number(1), "scripted")

    store.when("create", KEYS.number(1), refuse_late)
    seen: list[int] = []
    writer = stream.writer(on_commit=lambda item: seen.append(item.number))
    commits = []
    for offset in range(4):
        commits.append(append(writer, offset))
        await turns()
    assert KEYS.number(3) in store.listed()
    await runtime.sleep(2)
    assert [await outcome(commit) for commit in commits] == [None] + [FencedError] * 3
    assert seen == [0]
    assert writer.committed_end == 1
    await writer.abort()


@pytest.mark.parametrize(
    ("slice_meta", "data"),
    [
        (SliceMeta(b"short", 0, 0, 0, 0, 0), batch(0)),
        (SliceMeta(TOPIC, 0, 0, 5, 4, 0), batch(0)),
        (SliceMeta(TOPIC, -1, 0, 0, 0, 0), batch(0)),
        (meta(0), b"too short for a batch"),
    ],
)
@in_simulation
async def test_a_batch_that_cannot_be_written_is_refused_and_so_is_all_with_it(
    slice_meta: SliceMeta, data: bytes, store: ScriptedStore, stream: WalStream
) -> None:
    ended: list[NeveError] = []
    writer = stream.writer(on_end=ended.append)
    commits = [append(writer, 0, partition=9), writer.append(slice_meta, data)]
    await turns()
    assert [await outcome(commit) for commit in commits] == [ClosedError] * 2
    assert writer.buffered_bytes == 0
    assert len(ended) == 1
    assert isinstance(ended[0].__cause__, InvalidError)
    assert store.listed() == []
    await writer.abort()


@pytest.mark.parametrize("error", [ValueError("ours"), UnavailableError("k", "ours")])
@in_simulation
async def test_a_mistake_in_a_callback_acknowledges_nothing_more(
    error: Exception, store: ScriptedStore, stream: WalStream
) -> None:
    store.latency = lambda: 1.0
    seen: list[int] = []

    def on_commit(item: CommittedObject) -> None:
        seen.append(item.number)
        if item.number == 1:
            raise error

    writer = stream.writer(on_commit=on_commit)
    commits = []
    for offset in range(6):
        commits.append(append(writer, offset))
        await turns()
    await runtime.sleep(5)
    assert [await outcome(commit) for commit in commits] == [None] + [ClosedError] * 5
    assert seen == [0, 1]
    assert writer.ended is not None
    assert writer.ended.__cause__ is error
    assert writer.buffered_bytes == 0
    await writer.abort()
