"""Plans: what a selection would read, told from manifests and tails alone."""

from __future__ import annotations

import pytest

from neve.bucket.model import TopicReplacedError
from neve.bucket.planning import PartitionPlan
from neve.cluster.log import NoTopicError
from neve.errors import DamagedError, LostRangeError
from neve.log.manifest.records import Skip
from neve.records.reference import Record, build_batch
from support import bucket_samples as samples
from support.bucket_samples import Writer

END = 80


async def layered(partitions: int = 1) -> tuple[str, Writer]:
    """Segments hold offsets 0 to 19 and 20 to 39, a roll-up to 59, WAL objects the rest."""
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await samples.layered(writer, "t", partitions)
    return url, writer


def ranges(plan: PartitionPlan) -> list[tuple[int, int]]:
    return [(span.first, span.end) for span in plan.spans]


def is_contiguous(plan: PartitionPlan) -> bool:
    due = plan.first
    for span in plan.spans:
        if span.first != due:
            return False
        due = span.end
    return due == plan.stop


async def test_a_whole_topic_is_planned_without_reading_data() -> None:
    url, writer = await layered(2)
    segments = await writer.segments("t", 0)
    async with await samples.opened(url) as bucket:
        for key in [row.key for row in segments] + [str(row.index_key) for row in segments]:
            samples.remove(url, key)  # nothing here may need them
        plans = await bucket.plan("t")
    topic_id = writer.node.cluster.state.topic("t").topic_id  # type: ignore[union-attr]
    assert [(p.topic, p.topic_id, p.partition) for p in plans] == [
        ("t", topic_id, 0),
        ("t", topic_id, 1),
    ]
    for plan in plans:
        assert (plan.start, plan.end, plan.first, plan.stop) == (0, END, 0, END)
        assert is_contiguous(plan)
        assert ranges(plan)[:2] == [(0, 20), (20, 40)]
        assert [span.tail for span in plan.spans][:3] == [False, False, True]
        assert (plan.segments_planned, plan.segments_pruned, plan.bytes_pruned) == (2, 0, 0)
        assert plan.bytes_planned == sum(span.bytes for span in plan.spans)
        assert plan.failure is None
    assert plans[0].spans[0].bytes == segments[0].bytes
    assert plans[0].spans[0].max_timestamp == 1019
    await writer.abort()


@pytest.mark.parametrize(("first", "end"), [(0, 1), (3, 22), (19, 21), (38, 63), (79, 80), (7, 7)])
async def test_offsets_prune(first: int, end: int) -> None:
    url, writer = await layered()
    async with await samples.opened(url) as bucket:
        (whole,) = await bucket.plan("t")
        (plan,) = await bucket.plan("t", 0, from_offset=first, to_offset=end)
    assert (plan.first, plan.stop, plan.lost) == (first, end, 0)
    assert is_contiguous(plan)
    touched = sum(first < high and end > low and first < end for low, high in [(0, 20), (20, 40)])
    assert (plan.segments_planned, plan.segments_pruned) == (touched, 2 - touched)
    assert plan.bytes_planned + plan.bytes_pruned == whole.bytes_planned
    await writer.close()


async def test_half_of_a_segment_is_half_its_bytes() -> None:
    url, writer = await layered()
    (segment, _) = await writer.segments("t", 0)
    async with await samples.opened(url) as bucket:
        (plan,) = await bucket.plan("t", from_offset=10, to_offset=20)
    assert plan.bytes_planned == -(-segment.bytes // 2)
    await writer.close()


async def test_times_prune_whole_segments_and_slices() -> None:
    url, writer = await layered()
    async with await samples.opened(url) as bucket:
        (late,) = await bucket.plan("t", from_timestamp=1000 + 25)
        (early,) = await bucket.plan("t", to_timestamp=1000 + 20)
        (never,) = await bucket.plan("t", from_timestamp=1000 + END)
    assert ranges(late)[0] == (20, 40)
    assert (late.segments_planned, late.segments_pruned) == (1, 1)
    assert late.spans[-1].end == END
    assert is_contiguous(early)  # of a segment only the greatest time is known
    assert never.spans == ()
    assert (never.segments_planned, never.segments_pruned, never.bytes_planned) == (0, 2, 0)
    await writer.close()


async def test_a_record_that_is_older_than_its_batch_is_not_pruned() -> None:
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    log = writer.node.leader("t", 0).log
    rows = [Record(0, 5000, b"k", b"young"), Record(1, 1000, b"k", b"old")]
    await log.append(bytearray(build_batch(rows))).commit.wait()
    await log.tier()
    async with await samples.opened(url) as bucket:
        (plan,) = await bucket.plan("t", to_timestamp=2000)
        found = [row.value async for row in bucket.read("t", to_timestamp=2000)]
    assert found == [b"old"]
    assert ranges(plan) == [(0, 2)]
    await writer.close()


async def test_offsets_below_the_start_are_counted_as_lost() -> None:
    url, writer = await layered()
    await writer.start_at("t", 0, 20)
    async with await samples.opened(url) as bucket:
        (plan,) = await bucket.plan("t", from_offset=5)
        (earliest,) = await bucket.plan("t")
        (beyond,) = await bucket.plan("t", from_offset=500)
    assert (plan.start, plan.first, plan.lost) == (20, 20, 15)
    assert (plan.segments_planned, plan.segments_pruned) == (1, 0)
    assert (earliest.first, earliest.lost) == (20, 0)
    assert (beyond.first, beyond.stop, beyond.spans) == (END, END, ())
    await writer.close()


async def test_what_was_given_up_is_left_out() -> None:
    url, writer = await layered()
    manifest = writer.node.leader("t", 0).log.manifest
    await manifest.change(lambda _: [Skip(first=25, last=29, at_ms=1, reason="test")])
    async with await samples.opened(url) as bucket:
        (plan,) = await bucket.plan("t", to_offset=40)
    assert ranges(plan) == [(0, 20), (20, 25), (30, 40)]
    await writer.close()


async def test_a_damaged_stream_is_told_with_what_is_tiered() -> None:
    url, writer = await layered(2)
    async with await samples.opened(url) as bucket:
        (healthy, _) = await bucket.plan("t")
        assert healthy.failure is None
        stream = writer.node.incarnation
        prefix = f"wal/{stream:020d}/"
        for key in list(samples.objects(url).objects):
            if key.startswith(prefix) and "checkpoint" not in key:
                samples.damage(url, key, at=4)
        plans = await bucket.plan("t")
    for plan in plans:
        assert isinstance(plan.failure, DamagedError)
        assert (plan.end, ranges(plan)) == (40, [(0, 20), (20, 40)])
    await writer.abort()


async def test_a_topic_made_again_is_another_topic() -> None:
    url, writer = await layered()
    async with await samples.opened(url) as bucket:
        (plan,) = await bucket.plan("t")
        found = [b async for b in bucket.arrow("t", topic_id=plan.topic_id, columns=["offset"])]
        assert sum(batch.num_rows for batch in found) == END
        await writer.node.topics.delete("t")
        with pytest.raises(NoTopicError):
            await bucket.plan("t")
        await writer.node.topics.create("t", 1)
        (again,) = await bucket.plan("t")
        assert again.topic_id != plan.topic_id
        with pytest.raises(TopicReplacedError, match=plan.topic_id):
            await anext(bucket.arrow("t", topic_id=plan.topic_id))
    await writer.close()


async def test_offsets_that_nothing_holds_are_planned_so_that_their_reader_is_told() -> None:
    url, writer = await layered()
    (first, _) = await writer.segments("t", 0)
    async with await samples.opened(url) as bucket:
        source_segments = "neve.bucket.neve_layout.NeveSource.segments"
        with pytest.MonkeyPatch.context() as patch:

            async def without_first(self, low, end, *, with_times):  # type: ignore[no-untyped-def]
                rows = await self.manifest.segments(low, end - 1)
                return [row for row in rows if row.key != first.key]

            patch.setattr(source_segments, without_first)
            (plan,) = await bucket.plan("t")
            assert ranges(plan)[:2] == [(0, 20), (20, 40)]
            assert plan.spans[0].bytes == 0
            with pytest.raises(LostRangeError):
                await anext(bucket.arrow("t"))
    await writer.close()
