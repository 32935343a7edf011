"""Skip: refused without consent, recorded, counted, never silent."""

from __future__ import annotations

import pytest

from neve.bucket.skip import skip
from neve.bucket.verify import Options, Severity, verify
from neve.cluster.log import NoTopicError
from neve.errors import DamagedError, InvalidError
from neve.store.memory import MemoryStore
from support import bucket_samples as samples
from support.bucket_samples import Writer

TOPIC = "events"
QUICK = Options(settle_seconds=0, probe=False)


async def layered(url: str) -> Writer:
    writer = await Writer.start(url)
    await samples.layered(writer, TOPIC)
    return writer


async def test_without_consent_nothing_happens() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    before = dict(samples.objects(url).objects)
    with pytest.raises(InvalidError, match="--accept-loss"):
        await skip(MemoryStore(samples.objects(url)), TOPIC, 0, 0, 5, accept_loss=False)
    assert samples.objects(url).objects == before
    await writer.close()


@pytest.mark.parametrize(("first", "end"), [(5, 5), (7, 5), (0, 81), (-1, 3), (90, 95), (3, 12)])
async def test_only_offsets_of_the_log_can_be_given_up(first: int, end: int) -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.start_at(TOPIC, 0, 10)
    with pytest.raises(InvalidError, match="10 to 79"):
        await skip(MemoryStore(samples.objects(url)), TOPIC, 0, first, end, accept_loss=True)
    await writer.close()


async def test_topic_and_partition_must_exist() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    with pytest.raises(NoTopicError, match="other"):
        await skip(store, "other", 0, 0, 5, accept_loss=True)
    with pytest.raises(InvalidError, match="partitions 0 to 0"):
        await skip(store, TOPIC, 1, 0, 5, accept_loss=True)
    await writer.close()


async def test_a_damaged_segment_is_passed_with_the_loss_on_record_and_counted() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    _, second = await writer.segments(TOPIC, 0)
    samples.damage(url, second.key)
    with pytest.raises(DamagedError):
        async with await samples.opened(url) as bucket:
            [row async for row in bucket.read(TOPIC)]
    (finding,) = (await verify(store, QUICK)).findings
    ((first, end),) = finding.lost
    done = await skip(store, TOPIC, 0, first, end, accept_loss=True, reason="a bad disk")
    assert done.offsets == end - first
    report = await verify(store, QUICK)
    assert report.ok
    assert {row.severity for row in report.findings} == {Severity.SKIPPED}
    assert any("a bad disk" in row.what for row in report.findings)
    async with await samples.opened(url) as bucket:
        rows = [row async for row in bucket.read(TOPIC)]
        assert bucket.skipped == end - first
    await writer.close()
    wanted = [*range(first), *range(end, 80)]
    assert [row.offset for row in rows] == wanted
    assert second.key in samples.objects(url).objects


async def test_more_damage_than_was_given_up_is_still_damage() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    first, _ = await writer.segments(TOPIC, 0)
    samples.remove(url, first.key)
    await skip(store, TOPIC, 0, 5, 10, accept_loss=True)
    report = await verify(store, QUICK)
    await writer.close()
    assert not report.ok
    damage = next(row for row in report.findings if row.severity is Severity.DAMAGE)
    assert damage.lost == ((0, 5), (10, 20))
    assert damage.do.count("neve storage skip") == 2


async def test_what_was_given_up_before_is_not_counted_again() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    await skip(store, TOPIC, 0, 0, 10, accept_loss=True)
    again = await skip(store, TOPIC, 0, 2, 8, accept_loss=True)
    assert (again.offsets, again.number) == (0, None)
    more = await skip(store, TOPIC, 0, 5, 15, accept_loss=True)
    state = await writer.node.leader(TOPIC, 0).log.manifest.refresh()
    await writer.close()
    assert more.offsets == 5
    assert [(row.first, row.last) for row in state.skips] == [(0, 9), (5, 14)]


async def test_a_record_of_a_loss_outlives_a_checkpoint() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    await skip(store, TOPIC, 0, 0, 10, accept_loss=True, reason="why not")
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    await manifest.refresh()
    await manifest.checkpoint(1)
    report = await verify(store, QUICK)
    await writer.close()
    assert [row.severity for row in report.findings] == [Severity.SKIPPED]
    assert "why not" in report.findings[0].what


async def test_offsets_in_the_tail_can_be_given_up_though_their_object_cannot_be_read() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    for _ in range(3):
        await writer.append(TOPIC, 0, 5)
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 2)
    samples.damage(url, key, at=3)
    store = MemoryStore(samples.objects(url))
    done = await skip(store, TOPIC, 0, 85, 90, accept_loss=True)
    report = await verify(store, QUICK)
    await writer.close()
    assert done.offsets == 5
    assert [row.key for row in report.findings if row.severity is Severity.DAMAGE] == [key]
    assert not [row for row in report.findings if row.severity is Severity.GAP]


async def test_a_damaged_slice_of_the_tail_is_passed_too() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    for _ in range(3):
        await writer.append(TOPIC, 0, 5)
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 2)
    samples.damage(url, key, at=len(samples.objects(url).objects[key][0]) - 1)
    store = MemoryStore(samples.objects(url))
    (finding,) = (await verify(store, QUICK)).findings
    assert finding.lost == ((85, 90),)
    await skip(store, TOPIC, 0, 85, 90, accept_loss=True)
    report = await verify(store, QUICK)
    async with await samples.opened(url) as bucket:
        rows = [row async for row in bucket.read(TOPIC)]
        assert bucket.skipped == 5
    await writer.close()
    assert report.ok
    assert [row.offset for row in rows] == [*range(85), *range(90, 95)]
