"""The WAL's writer: group commit, the window, ordered commits, fences, failures, back pressure."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import (
    ClosedError,
    ConflictError,
    DeniedError,
    ExistsError,
    FencedError,
    FullError,
    InvalidError,
    NeveError,
    StoreFailedError,
    UnavailableError,
)
from neve.log.keys import wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import WalCheckpoint, write_checkpoint
from neve.log.wal.object import SliceMeta
from neve.log.wal.reader import WalReader
from neve.log.wal.writer import Commit, CommittedObject, WalWriter
from neve.settings import WalSettings
from neve.store.wrapper import Call
from support.scripted_store import ScriptedStore, changed, hold, in_simulation, refuse, slow
from support.wal_batches import SMALL, TOPIC, append, batch, meta, offsets, texts

INCARNATION = 5
KEYS = wal_stream(INCARNATION)


def writer_on(store: ScriptedStore, settings: WalSettings = SMALL, **options: object) -> WalWriter:
    return WalWriter(store, INCARNATION, settings, **options)  # type: ignore[arg-type]


def joining(join_bytes: int = 1000) -> tuple[ScriptedStore, asyncio.Event, WalWriter]:
    """A writer whose first upload is under way until it is released."""
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    return store, release, writer_on(store, join_bytes=join_bytes)


async def turns(count: int = 20) -> None:
    """Let everything that can go on without time go on."""
    for _ in range(count):
        await runtime.sleep(0)


async def sealed(store: ScriptedStore, *numbers: int) -> None:
    for number in numbers:
        seal = wal_object.encode_seal(
            incarnation=INCARNATION, number=number, author=b"successor.......", created_ms=0
        )
        await store.put(KEYS.number(number), seal)


async def written(store: ScriptedStore) -> list[int]:
    reader = WalReader(store, INCARNATION)
    return await texts(reader, await reader.tail())


async def outcome(commit: Commit) -> type[NeveError] | None:
    """How an append ended; it must be decided by now."""
    assert commit.done
    try:
        await commit.wait()
    except NeveError as error:
        return type(error)
    return None


def no_task_is_left() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


# --- cutting


@in_simulation
async def test_many_appends_are_one_object() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    commits = [append(writer, offset, partition=offset % 3) for offset in range(30)]
    for commit in commits:
        await commit.wait()
    assert store.asked("create") == 1
    assert {commit.number for commit in commits} == {0}
    tail = await WalReader(store, INCARNATION).tail()
    assert [offsets(tail, partition) for partition in range(3)] == [
        list(range(28)),
        list(range(1, 29)),
        list(range(2, 30)),
    ]
    await writer.close()


@in_simulation
async def test_without_a_linger_an_append_leaves_at_once() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    started = runtime.monotonic()
    await append(writer, 0).wait()
    assert runtime.monotonic() == started
    await writer.close()


@in_simulation
async def test_small_appends_join_while_an_upload_is_under_way() -> None:
    store, release, writer = joining()
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
    assert await written(store) == list(range(6))
    await writer.close()


@in_simulation
async def test_what_has_grown_enough_flies_beside_the_others() -> None:
    store, release, writer = joining()
    started = []
    for offset, size in enumerate((100, 400, 600, 1999, 1)):
        append(writer, offset, size=size)
        await turns()
        started.append(store.asked("create"))
    assert started == [1, 1, 2, 2, 3]
    release.set()
    await writer.flush()
    assert await written(store) == list(range(5))
    await writer.close()


@in_simulation
async def test_an_object_that_is_large_enough_waits_for_nobody_to_join() -> None:
    store, release, writer = joining(join_bytes=100 * SMALL.object_bytes)
    append(writer, 0)
    await turns()
    for offset in range(1, 5):
        append(writer, offset, size=SMALL.object_bytes // 4)
        await turns()
    assert store.asked("create") == 2
    release.set()
    await writer.flush()
    assert await written(store) == list(range(5))
    await writer.close()


@in_simulation
async def test_a_flush_does_not_wait_for_more_to_join() -> None:
    store, release, writer = joining()
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
async def test_what_waits_to_join_is_refused_with_the_stream() -> None:
    _, _, writer = joining()
    append(writer, 0)
    await turns()
    waiting = append(writer, 1)
    await turns()
    await writer.abort()
    assert await outcome(waiting) is ClosedError
    assert no_task_is_left()


@in_simulation
async def test_a_linger_waits_for_more() -> None:
    store = ScriptedStore()
    writer = writer_on(store, linger_ms=100)
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
async def test_an_object_that_is_large_enough_does_not_linger() -> None:
    store = ScriptedStore()
    writer = writer_on(store, linger_ms=100)
    await asyncio.gather(*(append(writer, at, size=1024).wait() for at in range(4)))
    assert runtime.monotonic() == pytest.approx(0, abs=0.01)
    late = append(writer, 4)
    await late.wait()
    assert runtime.monotonic() == pytest.approx(0.1, abs=0.01)
    await writer.close()


@pytest.mark.parametrize("linger_ms", [0, 100])
def test_no_object_grows_past_its_size_however_much_is_appended_at_once(linger_ms: int) -> None:
    async def main() -> None:
        store = ScriptedStore()
        writer = writer_on(store, linger_ms=linger_ms)
        commits = [append(writer, offset, size=1024) for offset in range(40)]
        for commit in commits:
            await commit.wait()
        sizes = [len(store.data(key)) for key in store.listed(KEYS.prefix)]
        assert len(sizes) == 10
        assert max(sizes) < 4096 + 1024
        assert await written(store) == list(range(40))
        await writer.close()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_no_object_grows_past_its_size_while_the_window_is_full() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    writer = writer_on(store)
    for offset in range(40):
        append(writer, offset, size=1024)
        await turns()
    release.set()
    await writer.flush()
    assert max(len(store.data(key)) for key in store.listed(KEYS.prefix)) < 4096 + 1024
    assert await written(store) == list(range(40))
    await writer.close()


@in_simulation
async def test_an_append_never_waits_and_never_touches_the_store() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    append(writer, 0)
    assert store.calls == []
    await writer.close()


@in_simulation
async def test_slices_of_one_partition_are_joined_and_epochs_kept_apart() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    append(writer, 0, epoch=1)
    append(writer, 1, epoch=1)
    append(writer, 2, epoch=2)
    await writer.flush()
    (item,) = (await WalReader(store, INCARNATION).tail()).objects
    assert [(row.leader_epoch, row.base_offset, row.last_offset) for row in item.slices] == [
        (1, 0, 1),
        (2, 2, 2),
    ]
    await writer.close()


# --- pipelining, and commits in order


@in_simulation
async def test_commits_are_told_in_order_whatever_the_uploads_do() -> None:
    store = ScriptedStore()
    for number, seconds in enumerate([0.5, 0.1, 0.3, 0.2]):
        store.when("create", KEYS.number(number), slow(seconds))
    seen: list[int] = []
    told: list[int] = []
    writer = writer_on(store, on_commit=lambda item: seen.append(item.number))
    for offset in range(4):
        commit = append(writer, offset)
        commit.then(lambda _, offset=offset: told.append(offset))
        await turns()
    await runtime.sleep(0.45)
    assert len(store.listed(KEYS.prefix)) == 3
    assert (seen, writer.committed_end) == ([], 0)
    await writer.flush()
    assert runtime.monotonic() == pytest.approx(0.5)
    assert seen == told == [0, 1, 2, 3]
    assert writer.committed_end == 4
    await writer.close()


@in_simulation
async def test_a_number_is_not_tried_before_the_one_a_window_below_is_durable() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    writer = writer_on(store)
    for offset in range(10):
        append(writer, offset)
        await turns()
    await runtime.sleep(10)
    tried = {call.key for call in store.calls if call.operation == "create"}
    assert tried == {KEYS.number(number) for number in range(SMALL.inflight_max)}
    release.set()
    await writer.flush()
    assert await written(store) == list(range(10))
    await writer.close()


@pytest.mark.parametrize("seed", range(30))
def test_the_window_and_the_order_hold_under_any_latencies(seed: int) -> None:
    async def main() -> None:
        chance = runtime.chance()
        store = ScriptedStore(latency=lambda: chance.expovariate(10))

        def sometimes(key: str) -> bool:
            return chance.random() < 0.1

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, refuse(ConflictError), times=None)
        store.when("create", sometimes, store.late(0.3), times=None)
        seen: list[int] = []
        writer = writer_on(store, on_commit=lambda item: seen.append(item.number))
        told: list[int] = []
        for offset in range(60):
            append(writer, offset).then(lambda _, offset=offset: told.append(offset))
            number = max((KEYS.number_of(call.key) or 0 for call in store.calls), default=0)
            assert number < writer.committed_end + SMALL.inflight_max
            await runtime.sleep(chance.random() / 10)
        await writer.close()
        assert told == list(range(60))
        assert seen == list(range(len(seen)))
        assert await written(store) == list(range(60))

    runtime.simulate(main(), seed=seed)


@in_simulation
async def test_what_is_committed_is_told_with_its_bytes_before_anyone_else() -> None:
    store = ScriptedStore()
    seen: list[CommittedObject] = []
    waiting: list[bool] = []

    def on_commit(item: CommittedObject) -> None:
        seen.append(item)
        waiting.append(commit.done)

    writer = writer_on(store, on_commit=on_commit)
    commit = append(writer, 7)
    await commit.wait()
    (item,) = seen
    assert waiting == [False]
    (entry,) = item.slices
    assert bytes(item.data[entry.position : entry.end]) == batch(7)
    assert bytes(item.data) == store.data(KEYS.number(0))
    await writer.close()


# --- undecided creates


@pytest.mark.parametrize("error", [UnavailableError, ConflictError, ExistsError])
@pytest.mark.parametrize("after", [False, True])
def test_an_undecided_create_is_repeated_until_it_is_ours(
    error: type[Exception], after: bool
) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEYS.number(0), refuse(error, after=after), times=2)
        writer = writer_on(store)
        await append(writer, 0).wait()
        await append(writer, 1).wait()
        assert await written(store) == [0, 1]
        await writer.close()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_create_that_lands_late_is_ours() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), store.late(0.01))
    writer = writer_on(store)
    await append(writer, 0).wait()
    await runtime.sleep(5)
    assert writer.ended is None
    assert await written(store) == [0]
    await writer.close()


@pytest.mark.parametrize("read", ["torn", "failed"])
def test_a_read_that_tells_nothing_is_repeated(read: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEYS.number(0), refuse(UnavailableError, after=True))
        action = changed(lambda data: data[:9]) if read == "torn" else refuse(UnavailableError)
        store.when("get_range", KEYS.number(0), action, times=3)
        writer = writer_on(store)
        await append(writer, 0).wait()
        assert writer.ended is None
        await writer.close()

    runtime.simulate(main(), seed=1)


# --- fences and failures


@in_simulation
async def test_a_seal_refuses_everything_from_there_on() -> None:
    store = ScriptedStore()
    ended: list[NeveError] = []
    writer = writer_on(store, on_end=ended.append)
    await append(writer, 0).wait()
    await sealed(store, 1)
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
    assert await written(store) == [0]


@in_simulation
async def test_numbers_below_a_seal_may_still_commit() -> None:
    store = ScriptedStore()
    await sealed(store, 2)
    store.when("create", KEYS.number(0), slow(1))
    store.when("create", KEYS.number(1), slow(2))
    writer = writer_on(store)
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
async def test_data_of_another_process_under_our_number_fences_us() -> None:
    store = ScriptedStore()
    other = writer_on(store)
    await append(other, 0).wait()
    writer = writer_on(store)
    commit = append(writer, 0)
    await turns()
    assert await outcome(commit) is FencedError
    await writer.abort()
    await other.close()


@pytest.mark.parametrize("error", [DeniedError, StoreFailedError])
@pytest.mark.parametrize("operation", ["create", "get_range"])
def test_what_cannot_pass_ends_the_stream_and_fails_every_batch(
    error: type[Exception], operation: str
) -> None:
    async def main() -> None:
        store = ScriptedStore()
        if operation == "get_range":
            store.when("create", KEYS.number(1), refuse(UnavailableError, after=True))

        async def refuse_late(call: Call, work: object) -> None:
            await runtime.sleep(0.5)
            raise error(call.key, "scripted")

        store.when(operation, KEYS.number(1), refuse_late, times=None)
        ended: list[NeveError] = []
        writer = writer_on(store, on_end=ended.append)
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

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_nothing_commits_past_a_failure_even_if_it_is_durable() -> None:
    store = ScriptedStore()

    async def refuse_late(call: object, work: object) -> None:
        await runtime.sleep(1)
        raise DeniedError(KEYS.number(1), "scripted")

    store.when("create", KEYS.number(1), refuse_late)
    seen: list[int] = []
    writer = writer_on(store, on_commit=lambda item: seen.append(item.number))
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
def test_a_batch_that_cannot_be_written_is_refused_and_so_is_all_with_it(
    slice_meta: SliceMeta, data: bytes
) -> None:
    async def main() -> None:
        store = ScriptedStore()
        ended: list[NeveError] = []
        writer = writer_on(store, on_end=ended.append)
        commits = [append(writer, 0, partition=9), writer.append(slice_meta, data)]
        await turns()
        assert [await outcome(commit) for commit in commits] == [ClosedError] * 2
        assert writer.buffered_bytes == 0
        assert len(ended) == 1
        assert isinstance(ended[0].__cause__, InvalidError)
        assert store.listed() == []
        await writer.abort()

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("error", [ValueError("ours"), UnavailableError("k", "ours")])
def test_a_mistake_in_a_callback_acknowledges_nothing_more(error: Exception) -> None:
    async def main() -> None:
        store = ScriptedStore(latency=lambda: 1.0)
        seen: list[int] = []

        def on_commit(item: CommittedObject) -> None:
            seen.append(item.number)
            if item.number == 1:
                raise error

        writer = writer_on(store, on_commit=on_commit)
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

    runtime.simulate(main(), seed=1)


# --- the buffer's bound


@in_simulation
async def test_appends_go_on_to_the_bound_while_one_upload_hangs() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(1), hold(release))
    writer = writer_on(store)
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
    assert await written(store) == [0]
    assert runtime.monotonic() == started
    waiting = runtime.spawn(writer.room())
    await runtime.sleep(60)
    assert not waiting.done()
    release.set()
    await waiting
    await writer.flush()
    assert await written(store) == list(range(appended + 1))
    assert writer.buffered_bytes == 0
    await writer.close()


@in_simulation
async def test_room_is_there_at_once_where_there_is_room() -> None:
    writer = writer_on(ScriptedStore())
    await writer.room()
    assert not writer.full
    await writer.close()


@in_simulation
async def test_everyone_who_waits_for_room_is_woken() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    writer = writer_on(store)
    append(writer, 0, size=SMALL.buffer_bytes)
    waiting = [runtime.spawn(writer.room()) for _ in range(5)]
    await turns()
    release.set()
    await turns()
    assert all(task.done() for task in waiting)
    await writer.close()


@in_simulation
async def test_who_waits_for_room_is_told_that_the_stream_ended() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    writer = writer_on(store)
    append(writer, 0, size=SMALL.buffer_bytes)
    waiting = runtime.spawn(writer.room())
    await turns()
    await writer.abort()
    with pytest.raises(ClosedError):
        await waiting


# --- closing


@in_simulation
async def test_closing_commits_what_was_appended() -> None:
    store = ScriptedStore(latency=lambda: 0.01)
    writer = writer_on(store, linger_ms=60_000)
    commits = [append(writer, offset) for offset in range(5)]
    await writer.close()
    assert [await outcome(commit) for commit in commits] == [None] * 5
    assert runtime.monotonic() < 1
    assert await written(store) == list(range(5))
    with pytest.raises(ClosedError):
        append(writer, 5)
    assert no_task_is_left()


@in_simulation
async def test_closing_an_idle_writer() -> None:
    ended: list[NeveError] = []
    writer = writer_on(ScriptedStore(), on_end=ended.append)
    await writer.close()
    await writer.close()
    assert [type(error) for error in ended] == [ClosedError]
    assert no_task_is_left()


@in_simulation
async def test_an_abort_leaves_no_task_and_tells_everyone() -> None:
    store = ScriptedStore()
    store.when("create", lambda key: True, hold(asyncio.Event()), times=None)
    store.when("get_range", lambda key: True, hold(asyncio.Event()), times=None)
    writer = writer_on(store)
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
async def test_an_abort_after_a_fence_tells_those_below_it_too() -> None:
    store = ScriptedStore()
    await sealed(store, 1)
    store.when("create", KEYS.number(0), hold(asyncio.Event()))
    writer = writer_on(store)
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
async def test_closing_a_fenced_writer_says_so() -> None:
    store = ScriptedStore()
    await sealed(store, 0)
    writer = writer_on(store)
    append(writer, 0)
    with pytest.raises(FencedError):
        await writer.close()
    assert no_task_is_left()


@in_simulation
async def test_a_waiter_that_is_cancelled_disturbs_nobody() -> None:
    store = ScriptedStore(latency=lambda: 1.0)
    writer = writer_on(store)
    commit = append(writer, 0)
    waiting = runtime.spawn(commit.wait())
    await turns()
    waiting.cancel()
    await turns()
    await commit.wait()
    await writer.close()


# --- still leading


@in_simulation
async def test_an_idle_leader_makes_sure_with_one_get() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    await append(writer, 0).wait()
    store.calls.clear()
    assert await writer.still_leading()
    assert [(call.operation, call.key) for call in store.calls] == [("get_range", KEYS.number(1))]
    await writer.close()


@in_simulation
async def test_with_an_upload_in_flight_the_checkpoint_is_looked_at_too() -> None:
    store = ScriptedStore()
    release = asyncio.Event()
    store.when("create", KEYS.number(0), hold(release))
    writer = writer_on(store)
    append(writer, 0)
    await turns()
    store.calls.clear()
    assert await writer.still_leading()
    assert [call.operation for call in store.calls] == ["get_range", "list"]
    release.set()
    await writer.close()


@in_simulation
async def test_a_sealed_stream_is_not_led_and_asking_ends_nothing_else() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    await append(writer, 0).wait()
    await sealed(store, 1)
    assert not await writer.still_leading()
    await writer.abort()


@in_simulation
async def test_a_seal_beyond_our_own_undecided_number_is_seen() -> None:
    """Our create landed and its answer hangs; a successor sealed the number behind it."""
    store = ScriptedStore()
    release = asyncio.Event()

    async def land_and_hang(call: object, work: object) -> None:
        await work()  # type: ignore[operator]
        await release.wait()

    store.when("create", KEYS.number(0), land_and_hang)
    writer = writer_on(store)
    append(writer, 0)
    await turns()
    assert KEYS.number(0) in store.listed()
    assert await writer.still_leading()
    await sealed(store, 1)
    assert not await writer.still_leading()
    release.set()
    await writer.abort()


@in_simulation
async def test_a_stream_rolled_up_past_our_undecided_number_is_not_led() -> None:
    """Ours landed, was sealed behind, rolled up and trimmed: that it is absent proves nothing."""
    store = ScriptedStore()
    release = asyncio.Event()

    async def land_and_hang(call: object, work: object) -> None:
        await work()  # type: ignore[operator]
        await release.wait()

    store.when("create", KEYS.number(0), land_and_hang)
    writer = writer_on(store)
    append(writer, 0)
    await turns()
    await sealed(store, 1)
    await write_checkpoint(store, KEYS, 1, WalCheckpoint())
    await store.delete(KEYS.number(0))
    assert not await writer.still_leading()
    release.set()
    await writer.abort()


@in_simulation
async def test_a_look_ends_while_others_write_faster_than_it_reads() -> None:
    store = ScriptedStore()
    store.when("get_range", lambda key: key.startswith(KEYS.prefix), slow(0.01), times=None)
    writer = writer_on(store)
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
async def test_one_look_serves_all_who_wait() -> None:
    store = ScriptedStore(latency=lambda: 0.1)
    writer = writer_on(store)
    await append(writer, 0).wait()
    store.calls.clear()
    answers = await runtime.gather(*(writer.still_leading() for _ in range(50)))
    assert answers == [True] * 50
    assert len(store.calls) == 1
    await writer.close()


@in_simulation
async def test_a_look_under_way_does_not_answer_a_later_question() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    await append(writer, 0).wait()

    async def answer_late(call: object, work: object) -> object:
        try:
            return await work()  # type: ignore[operator]
        finally:
            await runtime.sleep(1)

    store.when("get_range", KEYS.number(1), answer_late)
    early = runtime.spawn(writer.still_leading())
    await runtime.sleep(0.5)
    await sealed(store, 1)
    late = runtime.spawn(writer.still_leading())
    assert await early is True
    assert await late is False
    await writer.abort()


@pytest.mark.parametrize("trouble", ["down", "torn"])
def test_a_look_that_fails_ends_no_stream(trouble: str) -> None:
    """A store outage fences nobody."""

    async def main() -> None:
        store = ScriptedStore()
        writer = writer_on(store)
        await append(writer, 0).wait()
        if trouble == "torn":
            await sealed(store, 1)
        action = refuse(UnavailableError) if trouble == "down" else changed(lambda data: data[:3])
        store.when("get_range", KEYS.number(1), action, times=None)
        with pytest.raises(NeveError):
            await writer.still_leading()
        assert writer.ended is None
        store.scripts.clear()
        assert await writer.still_leading() is (trouble == "down")
        await writer.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_one_torn_read_does_not_spoil_a_look() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    await append(writer, 0).wait()
    await sealed(store, 1)
    store.when("get_range", KEYS.number(1), changed(lambda data: data[:3]))
    assert not await writer.still_leading()
    await writer.abort()


@in_simulation
async def test_a_look_whose_asker_left_still_serves_the_others() -> None:
    store = ScriptedStore(latency=lambda: 0.1)
    writer = writer_on(store)
    await append(writer, 0).wait()
    leaver = runtime.spawn(writer.still_leading())
    stayer = runtime.spawn(writer.still_leading())
    await runtime.sleep(0.05)
    leaver.cancel()
    assert await stayer
    await writer.close()


@in_simulation
async def test_an_ended_stream_is_not_led() -> None:
    store = ScriptedStore()
    writer = writer_on(store)
    await writer.close()
    store.calls.clear()
    assert not await writer.still_leading()
    assert store.calls == []
    assert no_task_is_left()
