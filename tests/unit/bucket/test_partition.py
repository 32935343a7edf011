"""One pass over a partition that is resolved again while it is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from neve.bucket.layout import Resolved
from neve.bucket.neve_layout import NeveSource
from neve.errors import DamagedError, NeveError
from neve.records.reference import Record, build_batch
from support import bucket_samples as samples
from support.bucket_samples import Writer

LARGE = b"v" * 100_000
"""A value for which a resolve reads directories only, and no records."""


async def append(writer: Writer, records: int) -> None:
    log = writer.node.leader("t", 0).log
    for _ in range(records):
        await log.append(bytearray(build_batch([Record(0, 1000, b"k", LARGE)]))).commit.wait()


async def half_tiered() -> tuple[str, Writer]:
    """Return a bucket with offsets 0 to 2 in a segment and 3 to 5 in WAL objects."""
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    await append(writer, 3)
    await writer.node.leader("t", 0).log.tier()
    await append(writer, 3)
    return url, writer


async def roll_up_damaged(url: str, writer: Writer) -> list[str]:
    """Replace the WAL objects by a damaged roll-up. Return its key."""
    before = set(samples.objects(url).objects)
    await writer.node.rollups.roll_up()
    rolled = [key for key in samples.objects(url).objects if key not in before and "rollup" in key]
    for key in rolled:
        samples.damage(url, key, 20)
    return rolled


def on_resolve(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[int, Resolved], Awaitable[Resolved]]
) -> None:
    """Call `change` with the number and result of each resolve; it returns what the reader gets."""
    resolve = NeveSource.resolve
    count = 0

    async def changed(self: NeveSource) -> Resolved:
        nonlocal count
        count += 1
        return await change(count, await resolve(self))

    monkeypatch.setattr(NeveSource, "resolve", changed)


async def read(url: str) -> tuple[list[int], NeveError | None]:
    async with await samples.opened(url) as bucket:
        found, error = await samples.collected(bucket.read("t"))
    return [row.offset for row in found], error


async def test_a_stream_that_is_damaged_while_it_is_read_is_reported_as_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, writer = await half_tiered()
    damaged: list[str] = []

    async def change(number: int, resolved: Resolved) -> Resolved:
        if number == 1:
            damaged.extend(await roll_up_damaged(url, writer))
        return resolved

    on_resolve(monkeypatch, change)
    found, error = await read(url)
    assert found == [0, 1, 2]
    assert isinstance(error, DamagedError)
    assert [error.key] == damaged
    await writer.abort()


async def test_damage_behind_the_end_of_a_read_does_not_fail_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was in the log when the read began was tiered before the damage."""
    url, writer = await half_tiered()

    async def change(number: int, resolved: Resolved) -> Resolved:
        if number == 1:
            await writer.node.leader("t", 0).log.tier()
            await append(writer, 3)
            assert await roll_up_damaged(url, writer)
        return resolved

    on_resolve(monkeypatch, change)
    assert await read(url) == ([0, 1, 2, 3, 4, 5], None)
    await writer.abort()


async def test_a_stream_that_becomes_readable_while_its_segments_are_read_is_read_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, writer = await half_tiered()
    (row,) = await writer.segments("t", 0)
    segment = bytes(samples.objects(url).objects[row.key][0])

    async def change(number: int, resolved: Resolved) -> Resolved:
        if number > 1:
            samples.objects(url).write(row.key, segment)
            return resolved
        samples.remove(url, row.key)  # the reader has a reason to resolve again
        failure = DamagedError("stream", "it cannot be read now")
        return replace(resolved, end=3, tail=(), failure=failure)

    on_resolve(monkeypatch, change)
    assert await read(url) == ([0, 1, 2, 3, 4, 5], None)
    await writer.abort()
