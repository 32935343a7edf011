"""A KafScale bucket, made here by hand from what its format says, read in place."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.model import Record
from neve.bucket.planning import PartitionPlan
from neve.cluster.log import NoTopicError
from neve.errors import DamagedError, LostRangeError, UnsupportedError
from neve.records import reference
from neve.records.crc import crc32c
from neve.records.reference import build_batch
from support import bucket_samples as samples
from support.bucket_samples import shown

PLACE = "production/orders/0"


def batches(base: int, counts: Sequence[int], codec: int = 0) -> list[bytes]:
    found = []
    for count in counts:
        rows = [
            reference.Record(base + i, 1000 + base + i, None, value(base + i)) for i in range(count)
        ]
        found.append(build_batch(rows, codec=codec))
        base += count
    return found


def value(offset: int) -> bytes:
    return b"order %d" % offset


def segment(base: int, parts: Sequence[bytes], count: int) -> bytes:
    body = b"".join(parts)
    return (
        struct.pack(">4sHHqiqI", b"KAFS", 1, 0, base, count, 1_700_000_000_000, 0)
        + body
        + struct.pack(">Iq4s", crc32c(body), base + count - 1, b"END!")
    )


def index(base: int, parts: Sequence[bytes], counts: Sequence[int]) -> bytes:
    entries, position = b"", 32
    for part, count in zip(parts, counts, strict=True):
        entries += struct.pack(">qi", base, position)
        base += count
        position += len(part)
    return struct.pack(">4sHiiH", b"IDX\0", 1, len(parts), 1, 0) + entries


def times(first: int, last: int) -> bytes:
    return struct.pack(">4sIqqqq", b"KFTF", 1, 1000 + first, 1000 + last, first, last)


class Foreign:
    """A bucket in memory with segments as KafScale would have put them there."""

    def __init__(self) -> None:
        self.url = samples.fresh_url()
        self.store = samples.objects(self.url)

    def add(
        self,
        base: int,
        counts: Sequence[int] = (2, 3, 5),
        *,
        place: str = PLACE,
        indexed: bool = True,
        timed: bool = False,
        codec: int = 0,
    ) -> str:
        parts = batches(base, counts, codec)
        key = f"{place}/segment-{base:020d}"
        self.store.write(f"{key}.kfs", segment(base, parts, sum(counts)))
        if indexed:
            self.store.write(f"{key}.index", index(base, parts, counts))
        if timed:
            self.store.write(f"{key}.kfst", times(base, base + sum(counts) - 1))
        return key

    def damage(self, key: str, at: int | None = None) -> None:
        samples.damage(self.url, key, at)

    async def open(self) -> AsyncBucket:
        return await samples.opened(self.url, layout="kafscale")

    async def read(self, topic: str = "orders", **bounds: object) -> list[int]:
        async with await self.open() as bucket:
            found: list[Record] = [r async for r in bucket.read(topic, **bounds)]  # type: ignore[arg-type]
        assert all(row.value == value(row.offset) for row in found)
        return [row.offset for row in found]


async def test_topics_and_offsets_come_from_the_listing() -> None:
    foreign = Foreign()
    foreign.add(40)
    foreign.add(50)
    foreign.add(0, place="production/orders/12")
    foreign.add(7, place="production/other/0")
    foreign.store.write("production/orders/notes.txt", b"not a segment")
    async with await foreign.open() as bucket:
        assert [(t.name, t.partitions) for t in await bucket.topics()] == [
            ("orders", (0, 12)),
            ("other", (0,)),
        ]
        assert await bucket.offsets("orders", 0) == (40, 60)
        info = await bucket.describe()
        assert (info.cluster_id, info.streams, info.errors) == ("", (), [])
        assert info.topics[0].partitions[0].segments == 2
        with pytest.raises(NoTopicError):
            await bucket.topic("third")


async def test_several_namespaces_stay_apart() -> None:
    foreign = Foreign()
    foreign.add(0)
    foreign.add(0, (1,), place="staging/orders/0")
    async with await foreign.open() as bucket:
        names = [topic.name for topic in await bucket.topics()]
    assert names == ["production/orders", "staging/orders"]
    assert await foreign.read("staging/orders") == [0]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_every_codec_is_read(codec: int) -> None:
    foreign = Foreign()
    foreign.add(0, codec=codec)
    assert await foreign.read() == list(range(10))


@pytest.mark.parametrize(("first", "end"), [(0, 20), (3, 12), (9, 11), (5, 6), (19, 20), (12, 99)])
@pytest.mark.parametrize("indexed", [True, False])
async def test_ranges_with_and_without_an_index(first: int, end: int, indexed: bool) -> None:
    foreign = Foreign()
    foreign.add(0, indexed=indexed)
    foreign.add(10, indexed=indexed, codec=4)
    found = await foreign.read(from_offset=first, to_offset=end)
    assert found == list(range(first, min(end, 20)))


@pytest.mark.parametrize("at", [0, 5, 9, 17, 25, 40])
async def test_a_damaged_index_changes_nothing(at: int) -> None:
    foreign = Foreign()
    foreign.damage(f"{foreign.add(0)}.index", at)
    assert await foreign.read(from_offset=3, to_offset=8) == list(range(3, 8))
    assert await foreign.read() == list(range(10))


async def test_an_index_cut_short_or_empty_changes_nothing() -> None:
    foreign = Foreign()
    key = foreign.add(0)
    for data in (b"", foreign.store.objects[f"{key}.index"][0][:-5]):
        foreign.store.write(f"{key}.index", data)
        assert await foreign.read(from_offset=3) == list(range(3, 10))


async def test_an_index_without_its_segment_is_a_stray() -> None:
    foreign = Foreign()
    foreign.add(0)
    gone = foreign.add(10)
    samples.remove(foreign.url, f"{gone}.kfs")
    lonely = foreign.add(0, place="production/lonely/0")
    samples.remove(foreign.url, f"{lonely}.kfs")
    assert await foreign.read() == list(range(10))
    async with await foreign.open() as bucket:
        assert [topic.name for topic in await bucket.topics()] == ["orders"]
        assert bucket._layout.strays == [f"{lonely}.index", f"{gone}.index"]  # type: ignore[attr-defined]


async def test_a_damaged_segment_is_named_and_others_go_on() -> None:
    foreign = Foreign()
    foreign.add(0)
    harmed = f"{foreign.add(10)}.kfs"
    foreign.add(20)
    foreign.add(0, place="production/orders/1")
    foreign.damage(harmed, 140)
    async with await foreign.open() as bucket:
        found, error = await samples.collected(bucket.read("orders"))
    assert isinstance(error, DamagedError)
    assert error.key == harmed
    assert [(row.partition, row.offset) for row in found] == [
        *((0, offset) for offset in range(10)),
        *((1, offset) for offset in range(10)),
    ]


async def test_a_base_offset_changed_behind_the_batch_s_checksum_is_found_by_the_footer_s() -> None:
    foreign = Foreign()
    key = f"{foreign.add(0)}.kfs"
    data = bytearray(foreign.store.objects[key][0])
    second = 32 + len(batches(0, (2,))[0])
    data[second : second + 8] = struct.pack(">q", 3)
    foreign.store.write(key, bytes(data))
    with pytest.raises(DamagedError, match="checksum in its footer"):
        await foreign.read()


async def test_a_segment_under_another_s_name_is_refused() -> None:
    foreign = Foreign()
    key = foreign.add(0, indexed=False)
    foreign.store.write(f"{PLACE}/segment-{10:020d}.kfs", foreign.store.objects[f"{key}.kfs"][0])
    with pytest.raises(DamagedError, match=f"{10:020d}"):
        await foreign.read()


async def test_a_cut_last_segment_fails_after_the_others() -> None:
    foreign = Foreign()
    foreign.add(0)
    key = f"{foreign.add(10)}.kfs"
    foreign.store.write(key, foreign.store.objects[key][0][:-7])
    async with await foreign.open() as bucket:
        found, error = await samples.collected(bucket.read("orders"))
        assert key in (await bucket.describe()).errors[0]
    assert isinstance(error, DamagedError)
    assert error.key == key
    assert [row.offset for row in found] == list(range(10))


async def test_a_newer_segment_is_refused_and_not_misread() -> None:
    foreign = Foreign()
    key = f"{foreign.add(0)}.kfs"
    data = bytearray(foreign.store.objects[key][0])
    data[5] = 2
    foreign.store.write(key, bytes(data))
    with pytest.raises(UnsupportedError, match="version 2"):
        await foreign.read()


async def test_holes_between_segments_are_counted() -> None:
    foreign = Foreign()
    foreign.add(0)
    foreign.add(15)
    async with await foreign.open() as bucket:
        found = [row.offset async for row in bucket.read("orders")]
        assert found == [*range(10), *range(15, 25)]
        assert bucket.skipped == 5
    assert await foreign.read(from_offset=12) == list(range(15, 25))


async def test_what_lies_below_the_first_segment_is_lost() -> None:
    foreign = Foreign()
    foreign.add(5)
    with pytest.raises(LostRangeError, match="below the log's start at 5"):
        await foreign.read(from_offset=2)


async def test_where_two_segments_hold_an_offset_the_higher_base_counts() -> None:
    foreign = Foreign()
    foreign.add(0, (5, 5))
    foreign.add(7, (5,))
    assert await foreign.read() == list(range(12))


async def test_times_prune_by_the_kfst_alone() -> None:
    foreign = Foreign()
    old = foreign.add(0, timed=True)
    foreign.add(10, timed=True)
    foreign.add(20, timed=False)
    samples.remove(foreign.url, f"{old}.index")
    foreign.damage(f"{old}.kfs", 100)
    assert await foreign.read(from_timestamp=1013, to_timestamp=1022) == list(range(13, 22))
    foreign.damage(f"{old}.kfst", 0)
    with pytest.raises(DamagedError):
        await foreign.read(from_timestamp=1013, to_timestamp=1022)


async def test_a_kfst_of_other_offsets_is_not_believed() -> None:
    foreign = Foreign()
    key = foreign.add(10)
    foreign.store.write(f"{key}.kfst", times(0, 5))
    assert await foreign.read(from_timestamp=1012) == list(range(12, 20))
    foreign.store.write(f"{key}.kfst", times(10, 14))  # of a segment that was written over since
    assert await foreign.read(from_timestamp=1016) == list(range(16, 20))


async def test_new_segments_are_followed() -> None:
    foreign = Foreign()
    foreign.add(0)
    async with await foreign.open() as bucket:
        source = bucket.follow("orders", from_offset=8)
        assert shown([await anext(source), await anext(source)]) == [
            (0, 8, value(8)),
            (0, 9, value(9)),
        ]
        foreign.add(10, (3,))
        assert [(await anext(source)).offset for _ in range(3)] == [10, 11, 12]
        await source.aclose()


async def test_times_prune_segments_of_a_plan() -> None:
    foreign = Foreign()
    for base in (0, 10, 20):
        foreign.add(base, timed=base != 10)
    async with await foreign.open() as bucket:
        (whole,) = await bucket.plan("orders")
        (late,) = await bucket.plan("orders", from_timestamp=1000 + 20)
        (early,) = await bucket.plan("orders", to_timestamp=1000 + 5)
    assert _ranges(whole) == [(0, 10), (10, 20), (20, 30)]
    assert whole.topic_id == ""
    # Of the second nobody wrote the times down: it has to be read.
    assert _ranges(late) == [(10, 20), (20, 30)]
    assert _ranges(early) == [(0, 10), (10, 20)]
    assert (early.segments_planned, early.segments_pruned) == (2, 1)


def _ranges(plan: PartitionPlan) -> list[tuple[int, int]]:
    return [(span.first, span.end) for span in plan.spans]
