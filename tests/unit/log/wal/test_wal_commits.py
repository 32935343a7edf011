"""The WAL writer's uploads: many at once, commits in order, and creates with unknown results."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    ExistsError,
    UnavailableError,
)
from neve.log.wal.writer import CommittedObject
from support.scripted_store import ScriptedStore, changed, in_simulation, refuse, slow
from support.wal_batches import SMALL, append, batch
from support.wal_streams import KEYS, WalStream, turns

# --- pipelining, and commits in order


@in_simulation
async def test_commits_are_told_in_order_whatever_the_uploads_do(
    store: ScriptedStore, stream: WalStream
) -> None:
    for number, seconds in enumerate([0.5, 0.1, 0.3, 0.2]):
        store.when("create", KEYS.number(number), slow(seconds))
    seen: list[int] = []
    told: list[int] = []
    writer = stream.writer(on_commit=lambda item: seen.append(item.number))
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
async def test_a_number_is_not_tried_before_the_one_a_window_below_is_durable(
    store: ScriptedStore, stream: WalStream
) -> None:
    release = stream.hold_create(0)
    writer = stream.writer()
    for offset in range(10):
        append(writer, offset)
        await turns()
    await runtime.sleep(10)
    tried = {call.key for call in store.calls if call.operation == "create"}
    assert tried == {KEYS.number(number) for number in range(SMALL.inflight_max)}
    release.set()
    await writer.flush()
    assert await stream.written() == list(range(10))
    await writer.close()


@pytest.mark.parametrize("seed", range(30))
def test_the_window_and_the_order_hold_under_any_latencies(
    seed: int, store: ScriptedStore, stream: WalStream
) -> None:
    async def main() -> None:
        chance = runtime.chance()
        store.latency = lambda: chance.expovariate(10)

        def sometimes(key: str) -> bool:
            return chance.random() < 0.1

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, refuse(ConflictError), times=None)
        store.when("create", sometimes, store.late(0.3), times=None)
        seen: list[int] = []
        writer = stream.writer(on_commit=lambda item: seen.append(item.number))
        told: list[int] = []
        for offset in range(60):
            append(writer, offset).then(lambda _, offset=offset: told.append(offset))
            number = max((KEYS.number_of(call.key) or 0 for call in store.calls), default=0)
            assert number < writer.committed_end + SMALL.inflight_max
            await runtime.sleep(chance.random() / 10)
        await writer.close()
        assert told == list(range(60))
        assert seen == list(range(len(seen)))
        assert await stream.written() == list(range(60))

    runtime.simulate(main(), seed=seed)


@in_simulation
async def test_what_is_committed_is_told_with_its_bytes_before_anyone_else(
    store: ScriptedStore, stream: WalStream
) -> None:
    seen: list[CommittedObject] = []
    waiting: list[bool] = []

    def on_commit(item: CommittedObject) -> None:
        seen.append(item)
        waiting.append(commit.done)

    writer = stream.writer(on_commit=on_commit)
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
@in_simulation
async def test_an_undecided_create_is_repeated_until_it_is_ours(
    error: type[Exception], after: bool, store: ScriptedStore, stream: WalStream
) -> None:
    store.when("create", KEYS.number(0), refuse(error, after=after), times=2)
    writer = stream.writer()
    await append(writer, 0).wait()
    await append(writer, 1).wait()
    assert await stream.written() == [0, 1]
    await writer.close()


@in_simulation
async def test_a_create_that_lands_late_is_ours(store: ScriptedStore, stream: WalStream) -> None:
    store.when("create", KEYS.number(0), store.late(0.01))
    writer = stream.writer()
    await append(writer, 0).wait()
    await runtime.sleep(5)
    assert writer.ended is None
    assert await stream.written() == [0]
    await writer.close()


@pytest.mark.parametrize("read", ["torn", "failed"])
@in_simulation
async def test_a_read_that_tells_nothing_is_repeated(
    read: str, store: ScriptedStore, stream: WalStream
) -> None:
    store.when("create", KEYS.number(0), refuse(UnavailableError, after=True))
    action = changed(lambda data: data[:9]) if read == "torn" else refuse(UnavailableError)
    store.when("get_range", KEYS.number(0), action, times=3)
    writer = stream.writer()
    await append(writer, 0).wait()
    assert writer.ended is None
    await writer.close()
