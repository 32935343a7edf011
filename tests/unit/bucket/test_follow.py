"""Following the tail: through roll-ups, tiering, failover and damage."""

from __future__ import annotations

import contextlib
import types
from collections.abc import AsyncGenerator, Iterator, Sequence

import pytest

import neve
from neve import runtime
from neve.bucket import follow as following
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.follow import decoded
from neve.bucket.model import Bounds, PartitionName, Record, Selection
from neve.cluster.log import NoTopicError
from neve.cluster.node import Node
from neve.errors import DamagedError, LostRangeError
from neve.log.reading.record_chunk import RecordChunk
from neve.store.meter import Meter
from neve.store.url import stack
from neve.store.wrapper import OPERATIONS
from support import bucket_samples as samples
from support.bucket_samples import QUICK, Writer, expected, shown
from support.node_world import TOPIC, send, small_settings, started, take_over, topic_of
from support.scripted_store import ScriptedStore, in_simulation

LATEST_ON = Bounds("latest")


async def take(source: AsyncGenerator[Record, None], count: int) -> list[tuple[int, int, bytes]]:
    found: list[Record] = []
    async with runtime.deadline(20):
        while len(found) < count:
            found.append(await anext(source))
    return shown(found)


async def nothing_comes(source: AsyncGenerator[Record, None]) -> bool:
    task = runtime.spawn(anext(source))  # type: ignore[arg-type]
    await runtime.sleep(0.05)
    came = task.done()
    task.cancel()
    with contextlib.suppress(BaseException):
        await task
    return not came


def chunks_of(*sizes: int) -> list[RecordChunk]:
    return [
        RecordChunk([memoryview(bytes(size))], size, n, n + 1, f"o{n}")
        for n, size in enumerate(sizes)
    ]


async def grouping(chunks: list[RecordChunk], failure: Exception | None = None) -> list[list[int]]:
    async def source() -> AsyncGenerator[RecordChunk, None]:
        for chunk in chunks:
            yield chunk
        if failure is not None:
            raise failure

    groups: list[list[int]] = []

    def decode(_: object, group: Sequence[RecordChunk], __: object) -> Iterator[int]:
        groups.append([chunk.first_offset for chunk in group])
        return iter([chunk.first_offset for chunk in group])

    reader = types.SimpleNamespace(name=PartitionName("t", 0), selection=Selection())
    delivered: list[int] = []

    async def deliver() -> None:
        async for row in decoded(reader, source(), decode):  # type: ignore[arg-type]
            delivered.append(row)

    with contextlib.nullcontext() if failure is None else pytest.raises(type(failure)):
        await deliver()
    assert delivered == [chunk.first_offset for chunk in chunks]
    return groups


@pytest.mark.parametrize(
    ("sizes", "becomes"),
    [
        ((), []),
        ((10,), [[0]]),
        ((40, 30, 30, 40, 30), [[0, 1, 2], [3, 4]]),
        ((100, 200), [[0], [1]]),
        ((1, 200, 1), [[0, 1], [2]]),
    ],
)
@pytest.mark.parametrize("failure", [None, DamagedError("o9", "it is damaged")])
async def test_small_chunks_are_decoded_together_and_none_is_lost_where_reading_ends(
    sizes: tuple[int, ...],
    becomes: list[list[int]],
    failure: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "GROUP_BYTES", 100)
    assert await grouping(chunks_of(*sizes), failure) == becomes


async def test_groups_grow_to_what_is_large_beside_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_GROUP_BYTES", 20)
    monkeypatch.setattr(following, "GROUP_BYTES", 60)
    groups = await grouping(chunks_of(*[20] * 14), None)
    assert [len(group) for group in groups] == [1, 2, 3, 3, 3, 2]


async def test_what_is_there_and_then_what_comes() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", 2)
    async with await samples.opened(url) as bucket:
        source = bucket.follow("t", 1, from_offset=15)
        assert await take(source, 65) == expected("t", 1, 15, 80)
        for first in (80, 90, 100):
            await writer.append("t", 0, 3)
            await writer.append("t", 1, 10)
            assert await take(source, 10) == expected("t", 1, first, first + 10)
        await source.aclose()
    await writer.close()


async def test_the_latest_begins_where_the_log_ends() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t")
    async with await samples.opened(url) as bucket:
        lists = await bucket.follow_lists("t", None, LATEST_ON)
        await writer.append("t", 0, 5)
        first = await anext(lists)
        assert shown(first) == expected("t", 0, 80, 80 + len(first))
        await lists.aclose()
    await writer.close()


async def test_an_end_ends_it() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", 2)
    async with await samples.opened(url) as bucket:
        source = bucket.follow("t", from_offset=75, to_offset=85)
        await take(source, 10)
        await writer.append("t", 0, 10)
        await writer.append("t", 1, 10)
        rest = shown([row async for row in source])
        assert sorted(rest) == expected("t", 0, 80, 85) + expected("t", 1, 80, 85)
    await writer.close()


async def test_roll_ups_and_tiering_in_between_lose_and_repeat_nothing() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    async with await samples.opened(url) as bucket:
        source = bucket.follow("t", from_offset=0)
        reached = 0
        for step in range(12):
            await writer.append("t", 0, 10)
            if step % 3 == 0:
                await writer.append("t", 0, 10)
                await writer.node.rollups.roll_up()
            if step % 4 == 1:
                await writer.node.leader("t", 0).log.tier()
                await writer.node.rollups.roll_up()
            end = writer.node.leader("t", 0).log.high_watermark
            assert await take(source, end - reached) == expected("t", 0, reached, end)
            reached = end
        await source.aclose()
    await writer.close()


async def test_a_new_leader_is_followed() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t")
    async with await samples.opened(url) as bucket:
        source = bucket.follow("t", from_offset=70)
        assert await take(source, 10) == expected("t", 0, 70, 80)
        await writer.abort()
        second = await Writer.start(url, 2)
        await take_over(second.node)
        await second.append("t", 0, 10)
        assert await take(source, 10) == expected("t", 0, 80, 90)
        await second.append("t", 0, 5)
        assert await take(source, 5) == expected("t", 0, 90, 95)
        await source.aclose()
        await second.close()


async def test_damage_is_told_when_the_others_have_nothing_new() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", 2)
    harmed = (await writer.segments("t", 0))[1].key
    samples.damage(url, harmed)
    async with await samples.opened(url) as bucket:
        found, error = await samples.collected(bucket.follow("t", from_offset=0))
        assert isinstance(error, DamagedError)
        assert error.key == harmed
        assert [row for row in shown(found) if row[0] == 1] == expected("t", 1, 0, 80)
    await writer.close()


async def test_what_retention_took_is_told() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t")
    await writer.start_at("t", 0, 20)
    async with await samples.opened(url) as bucket:
        with pytest.raises(LostRangeError, match="below the log's start at 20"):
            await take(bucket.follow("t", from_offset=5), 1)
    await writer.close()


async def test_a_topic_that_is_deleted_is_told() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t")
    async with await samples.opened(url) as bucket:
        source = bucket.follow("t", from_offset=79)
        await take(source, 1)
        await writer.node.cluster.delete_topic("t")
        with pytest.raises(NoTopicError, match="deleted while it was read"):
            await take(source, 1)
    await writer.close()


def test_one_look_serves_all_partitions_of_a_stream() -> None:
    """In virtual time, so that a poll is a poll: requests do not grow with the partitions."""

    async def requests(partitions: int) -> int:
        url = samples.fresh_url()
        writer = await Writer.start(url)
        await writer.node.topics.create("t", partitions)
        for number in range(partitions):
            await writer.append("t", number, 1)
        quiet = samples.settings(reader__poll__ms=1000, reader__cluster__poll__ms=10_000_000)
        async with await samples.opened(url, quiet) as bucket:
            lists = await bucket.follow_lists("t", None, LATEST_ON)
            waiting = runtime.spawn(anext(lists))  # type: ignore[arg-type]
            await runtime.sleep(50)
            meter = bucket._stack.meter
            before = _calls(meter)
            await runtime.sleep(100)
            made = _calls(meter) - before
            waiting.cancel()
            with contextlib.suppress(BaseException):
                await waiting
            await lists.aclose()
        await writer.close()
        return made

    one = runtime.simulate(requests(1), seed=1)
    assert 100 <= one <= 220
    assert runtime.simulate(requests(9), seed=2) == one


def _calls(meter: Meter) -> int:
    return sum(meter.calls(operation) for operation in OPERATIONS)


def test_following_from_ordinary_python() -> None:
    url = samples.fresh_url()
    writer = runtime.run(_written(url))
    with neve.open(url, settings=QUICK) as bucket:
        source = bucket.follow("t", from_offset=78)
        assert [next(source).offset, next(source).offset] == [78, 79]
        source.close()  # type: ignore[attr-defined]
    del writer


async def _written(url: str) -> Writer:
    writer = await Writer.start(url)
    await samples.layered(writer, "t")
    await writer.close()
    return writer


@in_simulation
async def test_a_leader_that_was_replaced_but_never_sealed_is_still_followed() -> None:
    """Its successor died between the cluster log and the seal: it goes on, and so do readers."""
    store = ScriptedStore()
    settings = small_settings(segment_bytes=1 << 20)
    leader = await started(store, settings)
    await send(leader, ["a"])
    bucket = await AsyncBucket.over(stack(store, settings.store), settings=settings)
    source = bucket.follow(TOPIC, from_offset=0)
    assert [row[2] for row in await take(source, 1)] == [b"a"]
    heir = await Node.start(store, settings, node_id=2)
    await heir.cluster.lead(heir.incarnation, [(topic_of(leader).topic_id, 0)])
    await heir.abort()
    later = runtime.spawn(take(source, 2))
    await runtime.sleep(settings.reader.cluster_poll_ms / 1000 + 1)
    for value in "bc":
        await send(leader, [value])
    assert [row[2] for row in await later] == [b"b", b"c"]
    await source.aclose()
    await leader.close()
    await bucket.close()
