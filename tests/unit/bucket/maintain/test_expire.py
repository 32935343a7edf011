"""Retention as a job: what the topic's configs say, by a clock that the store agrees with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from neve import runtime
from neve.bucket.maintain.clock import check_clock, clock_skew_ms
from neve.bucket.maintain.expire import expire_partition
from neve.bucket.maintain.merge import merge_partition
from neve.errors import InvalidError
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import ObjectInfo
from neve.store.wrapper import Wrapper
from support import internal_table as internal
from support.maintenance_world import assert_clean, filled, filled_bucket, listed, manifest_of
from support.node_world import TOPIC, CrashingStore, crash_everywhere, send, values_of
from support.scripted_store import ScriptedStore, first, in_simulation


class ShiftedStore(Wrapper):
    """A store whose clock differs from ours."""

    def __init__(self, inner: MemoryStore, ahead_ms: int) -> None:
        super().__init__(inner)
        self._ahead_ms = ahead_ms

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        rows = await self.inner.list(prefix, after)
        return [row._replace(modified_ms=row.modified_ms + self._ahead_ms) for row in rows]


@in_simulation
async def test_by_size_the_oldest_segments_go() -> None:
    store = MemoryStore()
    node, values = await filled(store, 5)
    rows = await listed(manifest_of(node, store))
    keep = sum(row.bytes for row in rows[2:])
    await node.topics.set_configs(TOPIC, {"retention.bytes": str(keep), "retention.ms": "-1"})
    result = await expire_partition(store, TOPIC, 0)
    assert (result.segments, result.start_before, result.start) == (2, 0, rows[2].base)
    assert await values_of(store) == values[rows[2].base :]
    assert rows[0].key not in store.bucket.objects
    again = await expire_partition(store, TOPIC, 0)
    assert (again.segments, again.start) == (0, rows[2].base)
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_the_tail_counts_towards_the_size() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3)
    rows = await listed(manifest_of(node, store))
    tail_bytes = node.leader(TOPIC, 0).log.tail_bytes
    assert tail_bytes > 0
    keep = sum(row.bytes for row in rows[1:]) + tail_bytes
    await node.topics.set_configs(TOPIC, {"retention.bytes": str(keep), "retention.ms": "-1"})
    assert (await expire_partition(store, TOPIC, 0)).segments == 1
    await node.close()


@in_simulation
async def test_by_age_what_is_older_goes_and_the_leader_says_so() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 4, tail=0)
    fresh = await send(node, ["fresh"], timestamp=runtime.now_ms())
    await node.leader(TOPIC, 0).log.tier()
    result = await expire_partition(store, TOPIC, 0)  # the others are of 1970
    assert (result.segments, result.start) == (4, fresh)
    assert await values_of(store) == ["fresh"]
    log = node.leader(TOPIC, 0).log
    await log.manifest.refresh()
    assert log.start_offset == fresh
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_when_all_has_expired_its_producers_are_still_known() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3, tail=0)
    result = await expire_partition(store, TOPIC, 0)
    assert (result.segments, result.start) == (3, 12)
    assert await values_of(store) == []
    state = await manifest_of(node, store).refresh()
    assert state.state_bundle is not None
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_a_dry_run_writes_nothing() -> None:
    store = ScriptedStore()
    node, values = await filled(store, 3)
    before = dict(store.bucket.objects)
    store.calls.clear()
    result = await expire_partition(store, TOPIC, 0, dry_run=True)
    assert (result.segments, result.start) == (3, 12)
    assert store.bucket.objects == before
    assert not any(store.asked(each) for each in ("create", "put", "delete"))
    assert await values_of(store) == values
    await node.close()


@pytest.mark.parametrize("ahead_ms", [-120_000, 120_000])
def test_a_clock_far_from_the_stores_expires_nothing(ahead_ms: int) -> None:
    async def run() -> None:
        memory = MemoryStore()
        node, values = await filled(memory, 3)
        store = ShiftedStore(memory, ahead_ms)
        with pytest.raises(InvalidError, match="set the clock"):
            await expire_partition(store, TOPIC, 0)
        assert await values_of(memory) == values
        assert not [key for key in memory.bucket.keys if key.startswith("probe/")]
        await expire_partition(store, TOPIC, 0, skew_max_ms=180_000)
        assert len(await values_of(memory)) < len(values)
        await node.close()

    runtime.simulate(run(), seed=1)


@in_simulation
async def test_whole_seconds_and_slow_writes_are_no_skew() -> None:
    memory = MemoryStore()
    assert await clock_skew_ms(memory) == 0
    assert await clock_skew_ms(ShiftedStore(memory, -999)) == 0
    slow = ScriptedStore(memory.bucket, latency=lambda: 90.0)
    assert await clock_skew_ms(slow) == 0
    await check_clock(ShiftedStore(memory, 59_000))


@in_simulation
async def test_of_an_internal_partition_the_last_two_segments_stay() -> None:
    store = MemoryStore()
    node = await internal.led(store)
    log = node.leader(internal.TOPIC, 0).log
    for number in range(4):
        await internal.write(node, (f"k{number}", "1"))
        await log.tier()
    before = await internal.state(node)
    rows = await listed(log.manifest)
    result = await expire_partition(store, internal.TOPIC, 0)
    assert (result.segments, result.start) == (2, rows[2].base)
    await node.abort()
    after = await internal.led(store, node_id=2)
    assert await internal.state(after) == before
    await after.close()


@in_simulation
async def test_a_merge_that_comes_in_between_costs_nothing() -> None:
    store = ScriptedStore()
    node, values = await filled(store, 4)
    rows = await listed(manifest_of(node, store))
    keep = sum(row.bytes for row in rows[2:])
    await node.topics.set_configs(TOPIC, {"retention.bytes": str(keep), "retention.ms": "-1"})
    other = MemoryStore(store.bucket)
    manifest = manifest_of(node, other)

    async def merge() -> None:
        await merge_partition(other, TOPIC, 0)

    store.when("create", lambda key: manifest.keys.number_of(key) is not None, first(merge))
    result = await expire_partition(store, TOPIC, 0)
    assert (result.segments, result.start) == (0, rows[2].base)
    assert await values_of(store) == values[rows[2].base :]
    await assert_clean(store)
    await node.close()


def test_killed_at_any_call_no_record_is_lost_but_the_expired() -> None:
    origin, values = filled_bucket(4, tail=1)

    async def life(store: CrashingStore) -> None:
        try:
            await expire_partition(store, TOPIC, 0)
        except Exception:
            assert store.crashed

    async def check(bucket: MemoryBucket, _: None) -> None:
        store = MemoryStore(bucket)
        assert await values_of(store) in (values, values[16:])
        await assert_clean(store)
        await expire_partition(store, TOPIC, 0)
        assert await values_of(store) == values[16:]
        await assert_clean(store)

    crash_everywhere(origin, life, check, step=2, seed=5)
