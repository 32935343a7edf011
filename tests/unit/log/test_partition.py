"""The leader's log of one partition: what it holds, when it tiers, where it finds its slices."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import ClosedError, DamagedError, FencedError, FullError, LostRangeError
from neve.log import untiered
from neve.log.keys import wal_stream
from neve.log.log_start import move_start
from neve.log.manifest import manifest as manifest_module
from neve.log.manifest.records import Skip
from neve.log.partition import PartitionLog
from neve.log.segment import kfs
from neve.log.wal.reader import WalReader
from neve.log.wal.rollup import roll_up, trim
from neve.settings import Settings, WalSettings
from support.node_world import (
    TOPIC,
    append,
    batch_of,
    send,
    small_settings,
    started,
    successor,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation

WIDE = small_settings(segment_bytes=1 << 20)


# --- segments


@in_simulation
async def test_a_segment_is_cut_at_a_batch_s_end() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=250))
    log = node.leader(TOPIC, 0).log
    append(node, ["a" * 40, "b" * 40])
    append(node, ["c" * 40, "d" * 40])  # one slice with the first: same object
    append(node, ["e" * 40])
    await node.writer.flush()
    assert await log.tier()
    assert log.tiered_offset == 4
    assert [row.entry.base_offset for row in log.tail] == [0]
    assert await log.tier()
    assert log.tiered_offset == 5
    assert not log.tail
    assert log.tail_bytes == 0
    listed = await log.manifest.segments()
    assert [(row.base, row.last, row.records) for row in listed] == [(0, 3, 4), (4, 4, 1)]
    assert await values_of(store) == [letter * 40 for letter in "abcde"]
    await node.close()


@in_simulation
async def test_a_segment_never_passes_what_its_index_can_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the settings: a segment above the bound could never be written."""
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=900, checkpoint_numbers=1))
    for letter in "abcdefgh":
        append(node, [letter * 200])
    await node.writer.flush()
    limit = 7 * len(batch_of(["a" * 200])) // 2
    monkeypatch.setattr(kfs, "SEGMENT_BYTES_MAX", limit + kfs.HEADER_BYTES + kfs.FOOTER_BYTES)
    monkeypatch.setattr(kfs, "BODY_BYTES_MAX", limit)
    log = node.leader(TOPIC, 0).log
    while await log.tier():
        pass
    listed = await log.manifest.segments()
    assert [(row.base, row.last) for row in listed] == [(0, 2), (3, 5), (6, 7)]
    assert await values_of(store) == [letter * 200 for letter in "abcdefgh"]
    await node.close()


@in_simulation
async def test_very_many_small_batches_are_gathered_with_chances_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a million of them took seconds in which nobody was served."""
    monkeypatch.setattr(untiered, "WALKED_AT_ONCE", 10)
    store = ScriptedStore()
    node = await started(store, WIDE)
    for at in range(1_000):
        append(node, [f"{at}"])
    await node.writer.flush()
    chances = 0

    async def count() -> None:
        nonlocal chances
        while True:
            chances += 1
            await runtime.sleep(0)

    log = node.leader(TOPIC, 0).log
    counting = runtime.spawn(count())
    assert len(b"".join(await log._untiered_batches(1 << 20))) > 60_000
    counting.cancel()
    assert chances >= 100
    assert await log.tier()
    assert await values_of(store) == [f"{at}" for at in range(1_000)]
    await node.close()


@in_simulation
async def test_several_segments_come_of_one_tending() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=200))
    for at in range(10):
        await send(node, [f"{at}" * 50])
    await node.run_due_work()
    log = node.leader(TOPIC, 0).log
    segments = await log.manifest.segments()
    assert len(segments) == 5
    assert [row.base for row in segments] == [0, 2, 4, 6, 8]
    assert (log.tail_bytes, len(log.tail)) == (0, 0)
    await node.close()


@in_simulation
async def test_nothing_to_tier_is_no_segment() -> None:
    store = ScriptedStore()
    node = await started(store)
    assert not await node.leader(TOPIC, 0).log.tier()
    await send(node, ["a"])
    assert await node.leader(TOPIC, 0).log.tier()
    assert not await node.leader(TOPIC, 0).log.tier()
    await node.close()


@in_simulation
async def test_two_that_tier_at_once_take_turns() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    for value in "abc":
        await send(node, [value])
    log = node.leader(TOPIC, 0).log
    assert sorted(await runtime.gather(log.tier(), log.tier())) == [False, True]
    assert len(await log.manifest.segments()) == 1
    await node.close()


@in_simulation
async def test_a_refused_batch_takes_no_offset() -> None:
    store = ScriptedStore()
    settings = Settings(wal=WalSettings(buffer_bytes=100))
    node = await started(store, settings)
    append(node, ["a" * 100])
    with pytest.raises(FullError):
        append(node, ["b"])
    log = node.leader(TOPIC, 0).log
    assert log.next_offset == 1
    # What belongs to a request that was let in is taken as a whole.
    admitted = log.append(batch_of(["d"]), admitted=True)
    assert admitted.base_offset == 1
    await node.writer.flush()
    assert await send(node, ["c"]) == 2
    await node.close()


@in_simulation
async def test_many_segments_are_gathered_into_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "RUN_SEGMENTS_MAX", 4)
    monkeypatch.setattr(manifest_module.Manifest.gather_runs, "__defaults__", (4,))
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=10, checkpoint_numbers=3))
    values = [f"value {at}" for at in range(10)]
    for value in values:
        await send(node, [value])
        await node.run_due_work()
    state = node.leader(TOPIC, 0).log.manifest.state
    assert [run.segments for run in state.runs] == [4, 4]
    assert len(state.loose) == 2
    assert await values_of(store) == values
    await node.abort()
    new = await successor(store)
    assert new.leader(TOPIC, 0).log.next_offset == 10
    assert len(await new.leader(TOPIC, 0).log.manifest.segments()) == 10
    await new.abort()


@in_simulation
async def test_the_manifest_is_checkpointed_and_trimmed_as_it_grows() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=10, checkpoint_numbers=4))
    prefix = node.leader(TOPIC, 0).log.manifest.keys.prefix
    for at in range(20):
        await send(node, [f"{at}"])
        await node.run_due_work()
        assert len(store.listed(prefix)) <= 4 + 2
    assert len(store.listed(f"{prefix}checkpoint/")) == 1
    assert await values_of(store) == [f"{at}" for at in range(20)]
    await node.close()


# --- where slices are


async def sweep(store: ScriptedStore, incarnation: int) -> None:
    """What another successor does: roll up a sealed stream to its end, and trim it."""
    reader = WalReader(store, incarnation)
    tail = await reader.tail()
    assert tail.sealed
    assert await roll_up(store, reader, tail, tail.position, lambda *_: 0) is not None
    await trim(store, reader, end=tail.position)


@in_simulation
async def test_slices_that_another_successor_rolled_up_are_found_again() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    values = [f"{at}" * 5_000 for at in range(6)]
    for value in values:
        await send(old, [value * 4])
    await old.abort()
    new = await successor(store, WIDE)
    log = new.leader(TOPIC, 0).log
    stale = [row._replace() for row in log.tail]
    # As if the sweep had been somebody else's: the log still names what is gone.
    keys = wal_stream(old.incarnation)
    assert [row.cached.number for row in stale] == [None]
    for row in stale:
        row.cached.key = keys.number(0)
    assert await log.tier()
    assert await values_of(store) == [value * 4 for value in values]
    await new.abort()


@in_simulation
async def test_two_successors_of_one_stream_do_not_disturb_each_other() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE, partitions=2)
    for at in range(4):
        append(old, [f"a{at}" * 9_000], 0)
        append(old, [f"b{at}" * 9_000], 1)
        await old.writer.flush()
    await old.abort()
    one = await successor(store, WIDE)
    # The other has the second partition's slices where they were before the sweep.
    await one.writer.abort()
    two = await successor(store, WIDE, node_id=3)
    for partition in range(2):
        assert await two.leader(TOPIC, partition).log.tier()
    assert await values_of(store, 0) == [f"a{at}" * 9_000 for at in range(4)]
    assert await values_of(store, 1) == [f"b{at}" * 9_000 for at in range(4)]
    await one.abort()
    await two.abort()


@in_simulation
async def test_a_slice_that_is_nowhere_is_told_and_nothing_is_skipped() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=1 << 20, cache_bytes=0))
    for value in "abc":
        await send(node, [value])
    key = wal_stream(node.incarnation).number(1)
    kept = store.data(key)
    await store.delete(key)
    log = node.leader(TOPIC, 0).log
    for _ in range(2):
        with pytest.raises((LostRangeError, DamagedError)):
            await log.tier()
        assert log.tiered_offset == 0
        assert await log.manifest.segments() == []
    del kept
    await node.abort()


@in_simulation
async def test_a_hole_in_what_is_held_never_becomes_a_segment() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    for value in "abc":
        await send(node, [value])
    log = node.leader(TOPIC, 0).log
    log.recent.clear()  # nor is it in memory
    lost = log.tail[1]
    log.tail.remove(lost)
    with pytest.raises(LostRangeError, match="1 to 1"):
        await log.tier()
    assert log.tiered_offset == 0
    log.tail.insert(1, lost)
    assert await log.tier()
    assert await values_of(store) == list("abc")
    await node.close()


@in_simulation
async def test_a_damaged_slice_stops_tiering_until_it_is_given_up() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=1 << 20, cache_bytes=0))
    for value in "abc":
        await send(node, [value])
    key = wal_stream(node.incarnation).number(1)
    data = bytearray(store.data(key))
    data[-1] ^= 1
    await store.put(key, bytes(data))
    log = node.leader(TOPIC, 0).log
    with pytest.raises(DamagedError) as raised:
        await log.tier()
    assert raised.value.key == key
    await log.manifest.change(lambda _: [Skip(1, 1, 0, "damaged")])
    assert await log.tier()
    assert log.tiered_offset == 3
    (only,) = await log.manifest.segments()
    assert (only.base, only.last, only.records) == (0, 2, 2)
    await node.abort()


# --- retention reaches into the tail


def producers(node: object) -> dict[int, int]:
    log = node.leader(TOPIC, 0).log  # type: ignore[attr-defined]
    entries = log.tiered_history.producers.entries()
    return {row.producer_id: row.last_sequence for row in entries}


@pytest.mark.parametrize("start", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("failover", [False, True])
def test_records_deleted_in_the_tail_are_gone_and_their_producers_are_not(
    start: int, failover: bool
) -> None:
    """Batches 0-1, 2-3, 4-5, each of another producer; the start may fall inside a batch."""

    async def main() -> None:
        store = ScriptedStore()
        node = await started(store, WIDE)
        for at in range(3):
            values = [f"{2 * at}", f"{2 * at + 1}"]
            await send(node, values, producer_id=at, sequence=0)
        log = node.leader(TOPIC, 0).log
        assert await move_start(log.manifest, start, end=log.high_watermark) == []
        assert await values_of(store) == [f"{at}" for at in range(start, 6)]
        if failover:
            await node.abort()
            node = await successor(store, WIDE)
            log = node.leader(TOPIC, 0).log
        assert log.next_offset == 6
        assert await log.tier()
        assert (log.tiered_offset, len(log.tail)) == (6, 0)
        assert producers(node) == {0: 1, 1: 1, 2: 1}
        assert await values_of(store) == [f"{at}" for at in range(start, 6)]
        assert len(await log.manifest.segments()) == (start < 6)
        await node.abort()
        third = await successor(store, WIDE, node_id=3)
        assert producers(third) == {0: 1, 1: 1, 2: 1}
        assert await send(third, ["6"]) == 6
        assert await third.collect() >= 0
        assert await values_of(store) == [f"{at}" for at in range(start, 7)]
        await third.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_damaged_slice_below_the_start_stops_nobody() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=1 << 20, cache_bytes=0))
    for value in "abc":
        await send(node, [value])
    key = wal_stream(node.incarnation).number(0)
    data = bytearray(store.data(key))
    data[-1] ^= 1
    await store.put(key, bytes(data))
    log = node.leader(TOPIC, 0).log
    await move_start(log.manifest, 1, end=3)
    assert await log.tier()
    assert log.tiered_offset == 3
    assert await values_of(store) == ["b", "c"]
    await node.abort()


@in_simulation
async def test_a_stream_is_let_go_once_all_of_it_is_deleted() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_ms=1)
    old = await started(store, settings)
    await send(old, ["a"])
    await old.abort()
    new = await successor(store, settings)
    log = new.leader(TOPIC, 0).log
    await move_start(log.manifest, 1, end=1)
    await runtime.sleep(1)
    await new.run_due_work()
    await new.cluster.refresh()
    assert [part.incarnation for part in topic_of(new).partitions[0].streams] == [new.incarnation]
    assert await values_of(store) == []
    await new.abort()


# --- readers that wait


@in_simulation
async def test_watchers_are_called_at_every_commit_in_order_until_they_stop() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE, partitions=2)
    log = node.leader(TOPIC, 0).log
    seen: list[tuple[str, int]] = []

    def one(told: PartitionLog) -> None:
        seen.append(("one", told.high_watermark))

    def other(told: PartitionLog) -> None:
        seen.append(("other", told.high_watermark))
        told.unwatch(other)

    log.watch(one)
    log.watch(other)
    log.watch(one)  # once is enough
    appended = append(node, ["a", "b"])
    assert seen == [], "appended is not committed"
    appended.commit.then(lambda _: seen.append(("producer", 0)))
    await node.writer.flush()
    await runtime.sleep(0)
    assert seen == [("one", 2), ("other", 2), ("producer", 0)]
    await send(node, ["c"])
    await send(node, ["elsewhere"], 1)
    assert seen[3:] == [("one", 3)]
    log.unwatch(one)
    log.unwatch(one)
    await send(node, ["d"])
    assert len(seen) == 4
    await node.close()


@in_simulation
async def test_a_watcher_s_mistake_ends_no_stream() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def broken(_: PartitionLog) -> None:
        raise RuntimeError("a mistake")

    node.leader(TOPIC, 0).log.watch(broken)
    assert await send(node, ["a"]) == 0
    assert await send(node, ["b"]) == 1
    assert [str(context["exception"]) for context in told] == ["a mistake"] * 2
    await node.close()


@in_simulation
async def test_a_log_that_is_led_no_more_tells_its_watchers_why() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    log = node.leader(TOPIC, 0).log
    seen: list[object] = []
    log.watch(lambda told: seen.append(told.closed))
    new = await successor(store, WIDE)
    with pytest.raises(FencedError):
        await send(node, ["late"])
    assert [type(each) for each in seen] == [FencedError]
    with pytest.raises(FencedError):
        log.append(batch_of(["later"]))
    log.close(ClosedError("again"))
    assert isinstance(log.closed, FencedError)
    assert len(seen) == 1
    await new.abort()
    await node.abort()


# --- what is in memory


def recent(log: PartitionLog) -> list[tuple[int, int]]:
    return [(row.entry.base_offset, row.entry.last_offset) for row in log.recent]


@in_simulation
async def test_what_is_in_memory_stays_through_tiering_and_roll_ups() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    log = node.leader(TOPIC, 0).log
    for value in "abc":
        await send(node, [value])
    assert await log.tier()
    for value in "de":
        await send(node, [value])
    assert await node.rollups.roll_up()
    assert recent(log) == [(at, at) for at in range(5)]
    assert [row.entry.base_offset for row in log.tail] == [3]
    store.calls.clear()
    assert await log.tier()
    gets = [call for call in store.calls if call.operation == "get_range"]
    assert gets == [], "a segment is made of what is in memory, wherever it lies by now"
    assert await values_of(store) == list("abcde")
    await node.close()


@in_simulation
async def test_rows_go_with_their_bytes_also_of_a_partition_that_is_idle() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_bytes=1 << 20, cache_bytes=20_000)
    node = await started(store, settings, partitions=2)
    idle, busy = node.leader(TOPIC, 0).log, node.leader(TOPIC, 1).log
    for value in "abc":
        await send(node, [value], 0)
    assert recent(idle) == [(0, 0), (1, 1), (2, 2)]
    for _ in range(30):
        await send(node, ["x" * 1_000], 1)
    assert recent(idle) == []
    assert 0 < len(busy.recent) < 15
    assert all(row.cached.data is not None for row in busy.recent)
    await node.close()


@in_simulation
async def test_a_cache_without_room_keeps_no_rows() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(cache_bytes=0))
    await send(node, ["a"])
    log = node.leader(TOPIC, 0).log
    assert (list(log.recent), len(log.tail)) == ([], 1)
    await node.close()


# --- epochs, starts, settings


@in_simulation
async def test_epochs_are_known_to_the_end_and_told_as_kafka_does() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    await send(node, ["a", "b"])
    assert node.leader(TOPIC, 0).log.epochs == [(0, 0)]
    await node.abort()
    node = await successor(store, WIDE)
    await node.leader(TOPIC, 0).log.tier()
    await node.abort()
    node = await successor(store, WIDE, node_id=3)  # nobody wrote under epoch 1
    log = node.leader(TOPIC, 0).log
    await send(node, ["c"])
    append(node, ["d"])
    assert log.epochs == [(0, 0), (2, 2)]
    assert log.end_of_epoch(0) == (0, 2)
    assert log.end_of_epoch(1) == (0, 2)
    assert log.end_of_epoch(2) == (2, 4)
    assert log.end_of_epoch(3) == (-1, -1)
    await node.abort()


@in_simulation
async def test_the_start_moves_with_retention() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    log = node.leader(TOPIC, 0).log
    await send(node, ["a", "b", "c"])
    assert log.start_offset == 0
    await move_start(log.manifest, 2, end=log.high_watermark)
    assert log.start_offset == 2
    await node.close()


@in_simulation
async def test_settings_of_segments_may_change_as_it_runs() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    log = node.leader(TOPIC, 0).log
    await send(node, ["a" * 500])
    assert not log.tiering_due()
    log.configure(small_settings(segment_bytes=300).segment)
    assert log.tiering_due()
    log.configure(small_settings(segment_bytes=1 << 20, segment_ms=1_000).segment)
    assert not log.tiering_due()
    await runtime.sleep(1)
    assert log.tiering_due()
    await node.close()
