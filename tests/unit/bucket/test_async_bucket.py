"""`neve.open` and its asynchronous core over Neve's own layout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import neve
from neve import runtime
from neve.bucket import async_bucket
from neve.bucket.async_bucket import NEAR_BYTES_MAX, AsyncBucket
from neve.bucket.model import PartitionsFailedError, Record
from neve.cluster.log import NoClusterError, NoTopicError
from neve.errors import ClosedError, DamagedError, InvalidError, LostRangeError
from neve.log.manifest.records import Skip
from neve.log.prefetch import PrefetchReader
from neve.records import reference
from neve.records.reference import build_batch
from neve.settings import PrefetchSettings
from neve.store.port import Store
from support import bucket_samples as samples
from support.bucket_samples import QUICK, Writer, expected, shown

END = 80


async def rows(found: AsyncIterator[Record]) -> list[tuple[int, int, bytes]]:
    return shown([record async for record in found])


async def two_partitions() -> tuple[str, Writer]:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", 2)
    return url, writer


async def test_everything_is_read_partition_by_partition() -> None:
    url, writer = await two_partitions()
    async with await samples.opened(url) as bucket:
        assert [(t.name, t.partitions) for t in await bucket.topics()] == [("t", (0, 1))]
        assert (await bucket.topic("t")).id == writer.node.cluster.state.topic("t").topic_id  # type: ignore[union-attr]
        assert await bucket.offsets("t", 1) == (0, END)
        both = expected("t", 0, 0, END) + expected("t", 1, 0, END)
        assert await rows(bucket.read("t")) == both
        assert await rows(bucket.read()) == both
        assert await rows(bucket.read("t", [1])) == expected("t", 1, 0, END)
        assert bucket.skipped == 0
        assert await rows(bucket.read(["t", "t"])) == both
        assert await rows(bucket.read(["t", "t"], [1, 1])) == expected("t", 1, 0, END)
        assert [plan.partition for plan in await bucket.plan(["t", "t"])] == [0, 1]
    await writer.close()


@pytest.mark.parametrize(("first", "end"), [(0, 1), (3, 22), (19, 21), (38, 63), (79, 80), (7, 7)])
async def test_ranges_straddle_batches_and_layers(first: int, end: int) -> None:
    url, writer = await two_partitions()
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t", 1, from_offset=first, to_offset=end))
        assert found == expected("t", 1, first, end)
    await writer.close()


async def test_ranges_by_partition_and_beyond_the_end() -> None:
    url, writer = await two_partitions()
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t", from_offset={0: 70, 1: 78}, to_offset={1: 79}))
        assert found == expected("t", 0, 70, END) + expected("t", 1, 78, 79)
        assert await rows(bucket.read("t", from_offset=END)) == []
        assert await rows(bucket.read("t", from_offset=10**12)) == []
        assert await rows(bucket.read("t", 0, from_offset=78, to_offset=10**12)) == expected(
            "t", 0, 78, END
        )
        assert await rows(bucket.read("t", from_offset="latest")) == []
    await writer.close()


@pytest.mark.parametrize(("first", "end"), [(1000, 1013), (1033, 1047), (1065, 9999), (0, 10**6)])
async def test_times_are_exact(first: int, end: int) -> None:
    url, writer = await two_partitions()
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t", 0, from_timestamp=first, to_timestamp=end))
        assert found == expected("t", 0, max(0, first - 1000), min(END, end - 1000))
    await writer.close()


async def test_times_prune_what_need_not_be_read() -> None:
    url, writer = await two_partitions()
    first, second = await writer.segments("t", 0)
    samples.remove(url, first.key)
    samples.remove(url, first.index_key or "")
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t", 0, from_timestamp=1000 + second.base))
        assert found == expected("t", 0, second.base, END)
    await writer.close()


async def test_control_batches_are_left_out() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    await writer.append("t", 0, 5)
    marker = build_batch([reference.Record(0, 9, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True)
    await writer.node.leader("t", 0).log.append(bytearray(marker)).commit.wait()
    await writer.append("t", 0, 5)
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t"))
        assert found == expected("t", 0, 0, 5) + expected("t", 0, 6, 11)
        assert await bucket.offsets("t", 0) == (0, 11)
    await writer.close()


async def test_what_was_given_up_is_passed_over_and_counted() -> None:
    url, writer = await two_partitions()
    damaged = (await writer.segments("t", 0))[1]
    samples.damage(url, damaged.key, at=40)
    manifest = writer.node.leader("t", 0).log.manifest
    await manifest.change(lambda _: [Skip(20, 24, 0, "test")])
    async with await samples.opened(url) as bucket:
        found = await rows(bucket.read("t", 0))
        assert found == expected("t", 0, 0, 20) + expected("t", 0, 25, END)
        assert bucket.skipped == 5
        assert (await bucket.describe()).topics[0].partitions[0].skipped == 5
        await writer.start_at("t", 0, 3)
        with pytest.raises(LostRangeError):
            await rows(bucket.read("t", 0, from_offset=2))
    await writer.close()


async def test_two_partitions_that_fail_are_named_in_one_error() -> None:
    url, writer = await two_partitions()
    keys = [(await writer.segments("t", number))[0].key for number in (0, 1)]
    for key in keys:
        samples.damage(url, key)
    async with await samples.opened(url) as bucket:
        with pytest.raises(PartitionsFailedError) as caught:
            await rows(bucket.read("t"))
        assert all(key in str(caught.value) for key in keys)
        errors = list(caught.value.failures.values())
        assert [isinstance(error, DamagedError) for error in errors] == [True, True]
        info = await bucket.describe()
        assert info.errors == []
    await writer.close()


async def test_a_damaged_slice_is_its_own_partition_s_trouble() -> None:
    url, writer = await two_partitions()
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 1)
    samples.damage(url, key, at=-1)
    async with await samples.opened(url) as bucket:
        found, error = await samples.collected(bucket.read("t"))
        assert isinstance(error, DamagedError)
        assert error.key == key
        last = len(found) - END
        assert 60 <= last < END
        assert shown(found) == expected("t", 0, 0, END) + expected("t", 1, 0, last)
        assert await bucket.offsets("t", 1) == (0, END)
    await writer.close()


async def test_a_path_may_be_a_path_object(tmp_path: Path) -> None:
    writer = await samples.Writer.start(str(tmp_path), chosen=samples.settings())
    await writer.node.topics.create("t", 1)
    await writer.close()
    async with await neve.open_async(tmp_path, settings=QUICK) as bucket:
        assert [topic.name for topic in await bucket.topics()] == ["t"]


@pytest.mark.parametrize(
    ("given", "ahead"),
    [
        ({}, NEAR_BYTES_MAX),
        ({"prefetch.bytes": "1024"}, 1024),
        ({"store.get.delay.ms": "1"}, PrefetchSettings().bytes),
    ],
)
async def test_little_is_read_ahead_of_a_folder_that_is_near(
    given: dict[str, str], ahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[int] = set()

    class Noted(PrefetchReader):
        def __init__(self, store: Store, settings: PrefetchSettings, **more: Any) -> None:
            used.add(settings.bytes)
            super().__init__(store, settings, **more)

    writer = await Writer.start(str(tmp_path))
    await samples.layered(writer, "t")
    await writer.close()
    monkeypatch.setattr(async_bucket, "PrefetchReader", Noted)
    async with await AsyncBucket.connect(tmp_path, settings=given) as bucket:
        assert await rows(bucket.read("t")) == expected("t", 0, 0, END)
    assert used == {ahead}


async def test_what_is_not_there_is_said_so() -> None:
    async with await samples.opened(samples.fresh_url()) as bucket:
        with pytest.raises(NoClusterError, match="no Neve cluster"):
            await bucket.topics()
    url, writer = await two_partitions()
    async with await samples.opened(url) as bucket:
        with pytest.raises(NoTopicError, match="no topic 'u'"):
            await bucket.topic("u")
        with pytest.raises(NoTopicError, match="no partition 2: it has 0 to 1"):
            await rows(bucket.read("t", 2))
        await writer.node.topics.create("u", 1)
        with pytest.raises(InvalidError, match="name one topic"):
            await rows(bucket.read(None, 0))
    with pytest.raises(InvalidError, match="no layout 'csv'"):
        await AsyncBucket.connect(url, layout="csv")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="unknown setting"):
        await AsyncBucket.connect(url, settings={"reader.speed": 1})
    await writer.close()


async def test_a_partition_that_nobody_led_yet_is_empty() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.cluster.create_topic("t", 2)
    async with await samples.opened(url) as bucket:
        assert await bucket.offsets("t", 1) == (0, 0)
        assert await rows(bucket.read("t")) == []
    await writer.close()


async def test_a_long_list_of_partitions_is_read_in_order() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 23)
    for number in range(23):
        await writer.append("t", number, 2)
    async with await samples.opened(url, samples.settings(reader__partitions__ahead=4)) as bucket:
        wanted = [row for number in range(23) for row in expected("t", number, 0, 2)]
        assert await rows(bucket.read("t")) == wanted
    await writer.close()


async def test_segments_are_read_in_parts_and_arrow_agrees() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    await writer.append("t", 0, 300, codec=4)
    await writer.node.leader("t", 0).log.tier()
    async with await samples.opened(url) as bucket:
        found = [batch async for batch in bucket.arrow("t", from_offset=101, to_offset=222)]
        offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
        assert offsets == list(range(101, 222))
        with pytest.raises(InvalidError, match="no column"):
            bucket.arrow("t", columns=("x",))
    await writer.close()


# --- the reader for ordinary Python


def test_open_is_a_context_and_ends_its_iterators() -> None:
    url, writer = runtime.run(_closed_bucket())
    with neve.open(url, settings=QUICK) as bucket:
        assert bucket.topic("t").partitions == (0, 1)
        assert bucket.offsets("t", 0) == (0, END)
        assert shown(list(bucket.read("t", 0))) == expected("t", 0, 0, END)
        assert sum(batch.num_rows for batch in bucket.arrow("t")) == 2 * END
        left = bucket.read("t")
        assert next(left).offset == 0
        other = bucket.read("t", 1)
        assert next(other).partition == 1
        left.close()  # type: ignore[attr-defined]
        batches = bucket.arrow("t")
        assert next(batches).num_rows > 0
        batches.close()  # type: ignore[attr-defined]
        held = bucket.arrow("t")
        assert next(held).num_rows > 0
    bucket.close()
    with pytest.raises(ClosedError):
        bucket.topics()
    with pytest.raises(ClosedError):
        list(other)
    with pytest.raises(ClosedError):
        list(held)
    del writer


async def _closed_bucket() -> tuple[str, Writer]:
    url, writer = await two_partitions()
    await writer.close()
    return url, writer


def test_a_bad_url_leaves_no_thread() -> None:
    with pytest.raises(InvalidError, match="unknown scheme ftp"):
        neve.open("ftp://x")


async def test_open_async_is_the_same() -> None:
    url, writer = await two_partitions()
    async with await neve.open_async(url, settings=QUICK) as bucket:
        assert len([row async for row in bucket.read("t")]) == 2 * END
    await writer.close()


def test_importing_neve_is_cheap() -> None:
    code = (
        "import sys, neve; print([m for m in ('numpy', 'pyarrow', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_what_segments_hold_is_read_without_a_look_at_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t")  # 40 of 80 records are in segments

    class LookedAtError(Exception):
        pass

    async def looked_at(*_: object) -> None:
        raise LookedAtError

    async with await samples.opened(url) as bucket:
        monkeypatch.setattr("neve.bucket.neve_layout.read_views", looked_at)
        rows = [row async for row in bucket.read("t", to_offset=40)]
        assert shown(rows) == expected("t", 0, 0, 40)
        with pytest.raises(LookedAtError):
            [row async for row in bucket.read("t", to_offset=41)]
        with pytest.raises(LookedAtError):
            [row async for row in bucket.read("t", from_offset=10)]
    await writer.close()
