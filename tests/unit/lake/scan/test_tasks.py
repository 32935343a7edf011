"""Reading a task's range while the log moves: no offset twice, and only removed ones skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neve.bucket import follow
from neve.errors import LostRangeError
from neve.lake.scan import tasks
from neve.lake.scan.tasks import ScanRange, StoreRef, bucket_of, read_what_is_left
from neve.log.manifest.records import Segment
from support import bucket_samples as samples
from support.bucket_samples import Writer

END = 120


@pytest.fixture(autouse=True)
def _one_segment_at_a_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(follow, "GROUP_BYTES", 1)
    monkeypatch.setattr(tasks, "_opened", {})
    yield
    for bucket in tasks._opened.values():
        bucket.close()


async def in_segments() -> tuple[str, Writer]:
    """Return the URL and the writer of a topic of 12 segments."""
    url = samples.fresh_url()
    writer = await Writer.start(url)
    await writer.node.topics.create("t", 1)
    for _ in range(END // 10):
        await writer.append("t", 0, 10)
        await writer.node.leader("t", 0).log.tier()
    return url, writer


def begun(url: str) -> tuple[list[int], Iterator[int]]:
    """Return the first offsets of a task that reads all, up to the second segment, and the rest."""
    chosen = {**samples.QUICK, **samples.ONE_AT_A_TIME}
    settings = tuple((name, str(value)) for name, value in chosen.items())
    store = StoreRef(url, settings=settings)
    task = ScanRange("t", bucket_of(store).topic("t").id, 0, 0, END, 0)

    def offsets() -> Iterator[int]:
        for batch in read_what_is_left(store, task, ("offset",)):
            yield from batch.column(0).to_pylist()

    rest = offsets()
    return [next(rest) for _ in range(15)], rest


async def test_offsets_that_were_removed_ahead_of_the_reader_are_skipped() -> None:
    url, writer = await in_segments()
    found, rest = begun(url)
    await writer.start_at("t", 0, 100)
    found += rest
    assert found == [*range(found.index(100)), *range(100, END)]
    assert found.index(100) < 100
    await writer.close()


async def test_lost_offsets_fail_a_task_that_delivered_more_than_was_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets below the log's start were delivered already, and are not why others are missing."""
    url, writer = await in_segments()
    found, rest = begun(url)
    lost = (await writer.segments("t", 0))[-1]

    async def without_lost(self, first, end, *, with_times):  # type: ignore[no-untyped-def]
        rows: list[Segment] = await self.manifest.segments(first, end - 1)
        # A read that began at the log's start again would deliver records before it fails.
        return [row for row in rows if row.key != lost.key or first <= 10]

    monkeypatch.setattr("neve.bucket.neve_layout.NeveSource.segments", without_lost)
    samples.remove(url, lost.key)
    await writer.start_at("t", 0, 10)
    with pytest.raises(LostRangeError, match="neither a segment nor a stream has offsets 110"):
        found.extend(rest)
    assert found == list(range(110))
    await writer.close()
