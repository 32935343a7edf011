"""Verify: what changes between two looks, and damage that only the last check sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from neve import runtime
from neve.bucket.verify import Options, Severity, verify
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.segments import check_segment
from neve.log.keys import new_segment_key
from neve.log.wal import object as wal_object
from neve.log.wal.object import AUTHOR_BYTES, Kind, SliceMeta
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import OBJECT_BYTES_MAX
from support import bucket_samples as samples
from support.bucket_samples import Writer
from support.node_world import take_over

TOPIC = "events"
QUICK = Options(settle_seconds=0, probe=False)


async def layered(url: str) -> Writer:
    writer = await Writer.start(url)
    await samples.layered(writer, TOPIC)
    return writer


class Meanwhile(MemoryStore):
    """Lets something happen just before an object is read for the first time."""

    def __init__(
        self, bucket: MemoryBucket, key: str, happens: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(bucket)
        self._key = key
        self._happens = happens
        self.happened = False

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        if key == self._key and not self.happened:
            self.happened = True
            await self._happens()
        return await super().get(key, bytes_max)


async def test_a_segment_that_expires_while_it_is_read_is_not_missed() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    store = Meanwhile(samples.objects(url), first.key, lambda: writer.start_at(TOPIC, 0, 20))
    report = await verify(store, QUICK)
    await writer.close()
    assert store.happened
    assert first.key not in samples.objects(url).objects
    assert report.findings == []


async def test_numbers_that_are_rolled_up_while_they_are_read_are_not_missed() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    for _ in range(20):
        await writer.append(TOPIC, 0, 5)
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 20)
    store = Meanwhile(samples.objects(url), key, writer.node.rollups.roll_up)
    report = await verify(store, QUICK)
    await writer.close()
    assert store.happened
    assert key not in samples.objects(url).objects
    assert report.findings == []
    assert report.counts["offsets"] == 180


async def test_a_stream_that_is_retired_while_it_is_walked_is_not_damaged() -> None:
    url = samples.fresh_url()
    first = await layered(url)
    stream = first.node.writer.keys.prefix
    await first.close()
    # The same node again: the process that wrote the stream is dead, and its stream may go.
    heir = await Writer.start(url)
    await take_over(heir.node, [TOPIC])
    (rollup,) = [key for key in samples.objects(url).objects if key.startswith(f"{stream}rollup/")]

    async def retire() -> None:
        await heir.node.leader(TOPIC, 0).log.tier()
        await heir.node.maintenance.record_tiered_streams()
        await heir.node.collect()

    store = Meanwhile(samples.objects(url), rollup, retire)
    report = await verify(store, QUICK)
    await heir.close()
    assert store.happened
    assert rollup not in samples.objects(url).objects
    assert [*report.wrong, *report.garbage] == []


async def test_a_topic_that_is_deleted_while_it_is_read_has_no_findings() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, second = await writer.segments(TOPIC, 0)

    async def delete() -> None:
        await writer.node.cluster.delete_topic(TOPIC)
        samples.remove(url, second.key)

    one_by_one = Options(settle_seconds=0, probe=False, objects_at_once=1)
    report = await verify(Meanwhile(samples.objects(url), first.key, delete), one_by_one)
    await writer.close()
    assert [row.severity for row in report.findings] == [Severity.NOTE]


def test_what_appears_after_the_first_look_is_not_told() -> None:
    async def main() -> None:
        url = samples.fresh_url()
        writer = await layered(url)
        first, _ = await writer.segments(TOPIC, 0)
        prefix = first.key[: first.key.rindex("/") + 1]
        old, young = (new_segment_key(prefix, 80, 1, "kfs") for _ in range(2))
        samples.objects(url).write(old, b"half a pair")

        async def upload() -> None:
            await runtime.sleep(25)
            samples.objects(url).write(young, b"an upload in flight")

        uploading = runtime.spawn(upload())
        report = await verify(MemoryStore(samples.objects(url)), Options(settle_seconds=30))
        await uploading
        await writer.close()
        assert young in samples.objects(url).objects
        assert [row.key for row in report.findings] == [old]

    runtime.simulate(main(), seed=7201)


async def test_what_is_doomed_and_not_yet_deleted_is_no_orphan() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    key = new_segment_key(first.key[: first.key.rindex("/") + 1], 80, 1, "kfs")
    samples.objects(url).write(key, b"half a pair")
    await writer.node.leader(TOPIC, 0).log.manifest.doom([key])
    report = await verify(MemoryStore(samples.objects(url)), QUICK)
    await writer.close()
    assert report.findings == []
    assert report.counts["doomed"] == 1


async def test_every_byte_of_a_segment_and_its_index_counts() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    await writer.close()
    bucket = samples.objects(url)
    for key in (first.key, str(first.index_key)):
        whole = bucket.objects[key][0]
        for at in range(0, len(whole), 3):
            samples.damage(url, key, at=at)
            result = await check_segment(MemoryStore(bucket), Bounds(), first)
            assert not result.is_well, (key, at)
            bucket.write(key, whole)
    assert (await check_segment(MemoryStore(bucket), Bounds(), first)).is_well


async def test_a_batch_that_was_written_damaged_is_found_in_a_slice_that_is_not() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    keys, number = writer.node.writer.keys, writer.node.writer.committed_end - 1
    bucket, key = samples.objects(url), keys.number(number)
    data = bucket.objects[key][0]
    decoded = wal_object.decode(data, key, incarnation=writer.node.incarnation, number=number)
    (entry,) = decoded.slices
    batches = bytearray(data[entry.position : entry.end])
    batches[-1] ^= 1
    bad = wal_object.encode(
        Kind.DATA,
        [(SliceMeta(*entry[:6]), [bytes(batches)])],
        incarnation=writer.node.incarnation,
        number=number,
        author=bytes(AUTHOR_BYTES),
        created_ms=0,
    ).data
    bucket.write(key, bad)
    report = await verify(MemoryStore(bucket), QUICK)
    await writer.close()
    assert [(row.severity, row.key) for row in report.findings] == [(Severity.DAMAGE, key)]
    assert report.findings[0].lost == ((60, 80),)
