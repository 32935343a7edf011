"""Readers while everything moves: tiering, roll-ups, trimming, collecting and failover at once.

In simulation, from seeds: what a reader gets is always the acknowledged records of its range, in
order, without a hole and without a repetition.
"""

from __future__ import annotations

import contextlib

import pytest

from neve import runtime
from neve.bucket import follow
from neve.bucket.async_bucket import AsyncBucket
from neve.errors import LostRangeError
from neve.log.keys import wal_stream
from neve.store.url import stack
from support import bucket_samples as samples
from support.bucket_samples import Writer
from support.node_world import TOPIC, send, small_settings, started, successor, take_over
from support.scripted_store import ScriptedStore, first, in_simulation

PARTITIONS = 2


@pytest.fixture(autouse=True, params=[1, 400])
def _few_at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object, or some: all of them would be read before a caller gets the first record."""
    monkeypatch.setattr(follow, "GROUP_BYTES", request.param)


async def write_and_move(writer: Writer, steps: int) -> None:
    chance = runtime.chance()
    for _ in range(steps):
        partition = chance.randrange(PARTITIONS)
        log = writer.node.leader("t", partition).log
        step = chance.randrange(8)
        if step < 4:
            await writer.append("t", partition, chance.randrange(1, 12))
        elif step < 6:
            await log.tier()
        elif step == 6:
            await writer.node.rollups.roll_up()
        else:
            await writer.node.collect()
        await runtime.sleep(chance.random() * 0.05)


async def check_reads(url: str, until: runtime.Tasks) -> int:
    """Read from chosen offsets again and again; how many records were seen."""
    seen = 0
    chosen = samples.settings(prefetch__window=2, prefetch__downloads=1)
    async with await samples.opened(url, chosen) as bucket:
        while len(until):
            await runtime.sleep(0.05)  # virtual time passes only while all tasks sleep
            partition = runtime.chance().randrange(PARTITIONS)
            start, end = await bucket.offsets("t", partition)
            first = runtime.chance().randrange(start, end + 1)
            expected = first
            async for row in bucket.read("t", partition, from_offset=first):
                assert row.offset == expected
                assert row.value == samples.value_of("t", partition, row.offset)
                expected += 1
                await runtime.sleep(runtime.chance().random() * 0.002)
            assert expected >= end
            seen += expected - first
    return seen


async def check_following(url: str, ends: dict[int, int]) -> None:
    """Follow both partitions to where the writer ended."""
    reached = dict.fromkeys(range(PARTITIONS), 0)
    async with await samples.opened(url, samples.settings(reader__poll__ms=25)) as bucket:
        source = bucket.follow("t", from_offset=0)
        async with contextlib.aclosing(source):
            async for row in source:
                assert row.offset == reached[row.partition]
                reached[row.partition] += 1
                if ends and reached == ends:
                    return


async def scenario() -> int:
    url = samples.fresh_url()
    writer = await Writer.start(url, chosen=samples.settings(manifest__checkpoint__numbers=3))
    await writer.node.topics.create("t", PARTITIONS)
    ends: dict[int, int] = {}
    writing = runtime.Tasks()
    writing.start(write_and_move(writer, 60))
    following = runtime.spawn(check_following(url, ends))
    seen = await check_reads(url, writing)
    await writer.abort()
    second = await Writer.start(url, 2, chosen=writer.chosen)
    await take_over(second.node)
    writing.start(write_and_move(second, 30))
    seen += await check_reads(url, writing)
    for partition in range(PARTITIONS):
        await second.append("t", partition, 1)
        ends[partition] = second.node.leader("t", partition).log.high_watermark
    async with runtime.deadline(60):
        for partition in range(PARTITIONS):  # so that the follower looks once more
            ends[partition] += 1
            await second.append("t", partition, 1)
        await following
    await second.close()
    return seen


@pytest.mark.parametrize("seed", range(6))
def test_what_moves_does_not_show(seed: int) -> None:
    assert runtime.simulate(scenario(), seed=seed) > 100


@in_simulation
async def test_a_reader_that_retention_passes_is_told() -> None:
    """Nothing is silently left out."""
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    for _ in range(6):
        await writer.append("t", 0, 10)
        await writer.node.leader("t", 0).log.tier()
    chosen = samples.settings(prefetch__window=1, prefetch__downloads=1)
    async with await samples.opened(url, chosen) as bucket:
        source = bucket.read("t")
        assert (await anext(source)).offset == 0
        await writer.start_at("t", 0, 60)
        rest, error = await samples.collected(source)
        assert [row.offset for row in rest] == list(range(1, 1 + len(rest)))
        assert isinstance(error, LostRangeError)
        assert f"offsets {1 + len(rest)} to 59" in str(error)
    await writer.close()


@in_simulation
async def test_two_readers_of_one_bucket_do_not_disturb_each_other_in_a_failover() -> None:
    """One learns of the new leader while the other looks at the streams."""
    store = ScriptedStore()
    settings = small_settings(segment_bytes=1 << 20)
    leader = await started(store, settings)
    await send(leader, ["a"])
    bucket = await AsyncBucket.over(stack(store, settings.store), settings=settings)
    heirs = []

    async def fail_over() -> None:
        heirs.append(await successor(store, settings))
        await bucket.topics()

    store.when("list", wal_stream(leader.incarnation).checkpoints, first(fail_over))
    assert [row.value async for row in bucket.read(TOPIC)] == [b"a"]
    await leader.abort()
    await heirs[0].close()
    await bucket.close()
