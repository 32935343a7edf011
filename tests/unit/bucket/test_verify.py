"""Verify: what a healthy bucket looks like, and what each kind of harm is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from neve import runtime
from neve.bucket.verify import Finding, Options, Report, Severity, verify
from neve.bucket.verify.findings import Remedy
from neve.cluster.liveness.heartbeat import write_heartbeat
from neve.cluster.log import ClusterLog, NoClusterError
from neve.errors import StoreFailedError
from neve.log.keys import (
    HEARTBEAT_PREFIX,
    heartbeat_key,
    new_rollup_key,
    new_run_key,
    wal_stream,
)
from neve.log.wal.object import encode_seal
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import OBJECT_BYTES_MAX, ObjectInfo
from support import bucket_samples as samples
from support.bucket_samples import Writer
from support.node_world import take_over

TOPIC = "events"
QUICK = Options(settle_seconds=0)


async def layered(url: str, partitions: int = 1) -> Writer:
    writer = await Writer.start(url)
    await samples.layered(writer, TOPIC, partitions)
    return writer


async def looked_at(url: str, options: Options = QUICK) -> Report:
    return await verify(MemoryStore(samples.objects(url)), options)


async def singly(writer: Writer, batches: int) -> None:
    """Batches of five records, each in an object of its own."""
    for _ in range(batches):
        await writer.append(TOPIC, 0, 5)


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, [f"{row.severity} {row.what}" for row in report.findings]
    return report.findings[0]


def told(report: Report) -> Counter[str]:
    return Counter(row.severity.value for row in report.findings)


async def test_a_healthy_bucket_has_no_findings_and_everything_was_read() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=3)
    report = await looked_at(url)
    await writer.close()
    assert report.findings == []
    assert report.ok
    assert report.counts["segments"] == 6
    assert report.counts["rollups"] == 1
    assert report.counts["stream_numbers"] == 3
    assert report.counts["offsets"] == 3 * 80
    assert report.counts["partitions"] == 3
    assert report.counts["rules"] == 7
    assert report.as_json()["ok"] is True


async def test_a_bucket_that_is_no_cluster_s_is_refused() -> None:
    try:
        await verify(MemoryStore(), QUICK)
    except NoClusterError:
        return
    raise AssertionError("nothing was there to verify")


async def test_nothing_is_written_to_a_bucket_that_is_no_cluster_s() -> None:
    with pytest.raises(NoClusterError):
        await verify(ReadOnly(MemoryBucket()), Options(settle_seconds=0, probe=True))


async def test_a_store_that_may_only_be_read_is_told_of_the_flag() -> None:
    url = samples.fresh_url()
    await (await layered(url)).close()
    with pytest.raises(StoreFailedError, match=r"read-only; .* pass --no-probe"):
        await verify(RefusesWrites(samples.objects(url)), Options(settle_seconds=0, probe=True))


class RefusesWrites(MemoryStore):
    """A folder that is mounted read-only."""

    async def create(self, key: str, data: object) -> None:
        raise StoreFailedError(key, "read-only")


async def test_without_the_probe_nothing_is_written() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.close()
    before = dict(samples.objects(url).objects)
    report = await verify(ReadOnly(samples.objects(url)), Options(settle_seconds=0, probe=False))
    assert report.ok
    assert samples.objects(url).objects == before


class ReadOnly(MemoryStore):
    async def create(self, key: str, data: object) -> None:
        raise AssertionError(f"{key} was created")

    async def put(self, key: str, data: object) -> None:
        raise AssertionError(f"{key} was written")

    async def delete(self, key: str) -> None:
        raise AssertionError(f"{key} was deleted")


class ForgetsCreates(MemoryStore):
    """Breaks the rule that a key is created once."""

    async def create(self, key: str, data: object) -> None:
        await self.put(key, data)  # type: ignore[arg-type]


async def test_a_broken_rule_is_named() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.close()
    report = await verify(ForgetsCreates(samples.objects(url)), QUICK)
    assert not report.ok
    assert {row.key for row in report.findings} == {"create-once", "create-race"}
    assert told(report) == {"rule": 2}


# -- segments and indexes ------------------------------------------------------------------------


async def test_a_damaged_segment_costs_only_its_damaged_stretch() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    _, second = await writer.segments(TOPIC, 0)
    samples.damage(url, second.key)
    finding = only(await looked_at(url, Options(url="s3://b", settle_seconds=0)))
    await writer.close()
    assert finding.severity is Severity.DAMAGE
    assert finding.key == second.key
    assert not finding.repairable
    ((start, end),) = finding.lost
    assert second.base <= start < end <= second.last + 1
    assert end - start < second.last + 1 - second.base, "the index tells which stretch it is"
    command = (
        f"neve storage skip s3://b --topic {TOPIC} --partition 0 "
        f"--from {start} --to {end} --accept-loss"
    )
    assert command in finding.do


async def test_a_segment_that_is_gone_costs_all_its_offsets() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    samples.remove(url, first.key)
    finding = only(await looked_at(url))
    await writer.close()
    assert finding.severity is Severity.DAMAGE
    assert finding.lost == ((0, 20),)
    assert "listed but missing" in finding.what


async def test_a_damaged_segment_without_its_index_costs_all_its_offsets() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    samples.damage(url, first.key)
    samples.remove(url, str(first.index_key))
    report = await looked_at(url)
    await writer.close()
    assert told(report) == {"damage": 2}
    assert report.findings[0].lost == ((0, 20),)
    assert not any(row.repairable for row in report.findings)


async def test_a_segment_that_is_another_than_listed_is_found() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=2)
    (one, _), (other, _) = [await writer.segments(TOPIC, number) for number in (0, 1)]
    bucket = samples.objects(url)
    bucket.write(one.key, bucket.objects[other.key][0])
    report = await looked_at(url)
    await writer.close()
    assert {row.key for row in report.findings} >= {one.key}
    assert not report.ok


async def test_a_lost_and_a_damaged_index_can_be_repaired() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, second = await writer.segments(TOPIC, 0)
    samples.remove(url, str(first.index_key))
    samples.damage(url, str(second.index_key))
    report = await looked_at(url)
    await writer.close()
    assert told(report) == {"damage": 2}
    assert [row.key for row in report.findings] == [first.index_key, second.index_key]
    assert all(row.remedy is Remedy.RESTORE_INDEX for row in report.findings)


async def test_an_index_of_another_segment_is_no_index() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=2)
    (one, _), (other, _) = [await writer.segments(TOPIC, number) for number in (0, 1)]
    bucket = samples.objects(url)
    bucket.write(str(one.index_key), bucket.objects[str(other.index_key)][0])
    finding = only(await looked_at(url))
    await writer.close()
    assert finding.key == one.index_key
    assert finding.repairable


async def test_the_bundle_that_outlives_its_segments_is_checked() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.start_at(TOPIC, 0, 40)
    state = writer.node.leader(TOPIC, 0).log.manifest.state
    assert state.state_bundle is not None
    assert (await looked_at(url)).findings == []
    samples.damage(url, state.state_bundle.key)
    finding = only(await looked_at(url))
    await writer.close()
    assert (finding.severity, finding.key) == (Severity.DAMAGE, state.state_bundle.key)


# -- manifests and the cluster log ---------------------------------------------------------------


async def test_a_damaged_manifest_number_is_damage_and_other_partitions_go_on() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=2)
    manifest = writer.node.leader(TOPIC, 1).log.manifest
    samples.damage(url, manifest.keys.number(1))
    report = await looked_at(url)
    await writer.close()
    finding = only(report)
    assert finding.key == manifest.keys.number(1)
    assert not finding.repairable
    assert report.counts["segments"] == 2


async def test_a_missing_manifest_number_is_a_gap() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    samples.remove(url, manifest.keys.number(0))
    report = await looked_at(url)
    await writer.close()
    gaps = [row for row in report.findings if row.severity is Severity.GAP]
    assert manifest.keys.number(0) in {row.key for row in gaps}
    assert not report.ok


async def test_a_missing_and_a_damaged_number_of_the_cluster_log() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.close()
    log = "meta/log/00000000000000000001"
    data = samples.objects(url).objects[log][0]
    samples.damage(url, log)
    assert only(await looked_at(url)).key == log
    samples.remove(url, log)
    finding = next(row for row in (await looked_at(url)).findings if row.severity is Severity.GAP)
    assert finding.key == log
    samples.objects(url).write(log, data)
    assert (await looked_at(url)).ok


async def test_a_gap_between_listed_segments() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    from neve.log.manifest.records import Replace, removal

    await writer.node.leader(TOPIC, 0).log.manifest.change(
        lambda _: [Replace((removal(first),), ())]
    )
    finding = next(row for row in (await looked_at(url)).findings if row.lost)
    await writer.close()
    assert (finding.severity, finding.lost) == (Severity.GAP, ((0, 20),))


# -- streams -------------------------------------------------------------------------------------


async def test_a_damaged_slice_names_the_offsets_that_it_costs() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=2)
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 1)
    samples.damage(url, key, at=len(samples.objects(url).objects[key][0]) - 1)
    finding = only(await looked_at(url))
    await writer.close()
    assert (finding.severity, finding.key) == (Severity.DAMAGE, key)
    assert finding.place is not None
    assert finding.place.partition == 1
    assert finding.lost
    assert finding.lost[0][1] == 80


async def test_an_object_that_cannot_be_read_at_all_shows_with_the_offsets_it_held() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await singly(writer, 3)
    key = writer.node.writer.keys.number(writer.node.writer.committed_end - 2)
    samples.damage(url, key, at=3)
    report = await looked_at(url)
    await writer.close()
    assert told(report) == {"damage": 1, "gap": 1}
    gap = next(row for row in report.findings if row.severity is Severity.GAP)
    assert gap.lost == ((85, 90),)
    assert "--from 85 --to 90" in gap.do


async def test_a_lost_roll_up_is_damage_and_its_offsets_are_a_gap() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    (key,) = [key for key in samples.objects(url).keys if "/rollup/" in key]
    samples.remove(url, key)
    report = await looked_at(url)
    await writer.close()
    assert told(report) == {"damage": 1, "gap": 1}
    assert next(row for row in report.findings if row.lost).lost == ((40, 60),)


async def test_a_hole_wider_than_the_window_is_a_gap_and_one_within_is_an_upload() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await singly(writer, 12)
    keys, end = writer.node.writer.keys, writer.node.writer.committed_end
    data = samples.objects(url).objects[keys.number(end - 2)][0]
    samples.remove(url, keys.number(end - 2))
    assert (await looked_at(url)).ok, "it may be in flight"
    samples.objects(url).write(keys.number(end - 2), data)
    samples.remove(url, keys.number(end - 10))
    finding = only(await looked_at(url))
    await writer.close()
    assert (finding.severity, finding.key) == (Severity.GAP, keys.number(end - 10))


async def test_seals_that_reach_far_ahead_are_no_gap() -> None:
    """A sealer at work: its seals land in any order, and further ahead than any writer is."""
    url = samples.fresh_url()
    writer = await layered(url)
    keys, end = writer.node.writer.keys, writer.node.writer.committed_end
    incarnation = writer.node.incarnation
    for number in range(end + 1, end + 40):
        seal = encode_seal(
            incarnation=incarnation, number=number, author=b"sealer..........", created_ms=0
        )
        samples.objects(url).write(keys.number(number), seal)
    assert (await looked_at(url)).ok
    await writer.abort()


# -- orphans and leftovers -----------------------------------------------------------------------


async def test_what_no_manifest_lists_is_an_orphan() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    bucket = samples.objects(url)
    half = first.key[:-20] + "0" * 16 + ".kfs"
    run = new_run_key(writer.node.leader(TOPIC, 0).log.manifest.keys)
    bucket.write(half, b"half a pair")
    bucket.write(run, b"a run that nobody added")
    report = await looked_at(url)
    await writer.close()
    assert {row.key for row in report.findings} == {half, run}
    assert all(row.severity is Severity.ORPHAN and row.repairable for row in report.findings)


async def test_keys_that_neve_never_writes_are_told_and_never_repaired() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    folder = first.key.rpartition("/")[0]
    strange = [
        f"{folder}/notes.txt",
        "meta/log/notes",
        "wal/notes",
        "wal/00000000000000009999/00000000000000000000",
        "topics/notes",
        f"topics/gone.{'ab' * 16}/0000000000/segment-x",
    ]
    for key in strange:
        samples.objects(url).write(key, b"?")
    samples.objects(url).write("elsewhere/is-not-ours", b"?")
    report = await looked_at(url)
    await writer.close()
    assert {row.key for row in report.findings} == set(strange)
    assert not any(row.repairable for row in report.findings)
    assert told(report) == {"orphan": len(strange)}


async def test_leftovers_of_a_stream() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    keys = writer.node.writer.keys
    bucket = samples.objects(url)
    checkpoint = max(key for key in bucket.keys if key.startswith(keys.checkpoints))
    number = keys.checkpoint_of(checkpoint)
    assert number is not None
    put_back, waste = keys.number(0), new_rollup_key(keys, number)
    bucket.write(put_back, b"landed late")
    bucket.write(waste, b"lost against another checkpoint")
    bucket.write(new_rollup_key(keys, number + 1), b"for a checkpoint that may come")
    report = await looked_at(url)
    await writer.close()
    assert {row.key for row in report.findings} == {put_back, waste}
    assert all(row.remedy is Remedy.TRIM_STREAM for row in report.findings)


async def test_leftovers_below_a_manifest_s_and_the_cluster_log_s_checkpoint() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    await manifest.checkpoint(1)
    samples.objects(url).write(manifest.keys.number(0), b"landed late")
    report = await looked_at(url)
    await writer.close()
    assert only(report).remedy is Remedy.TRIM_MANIFEST


async def test_a_dead_stream_that_nobody_needs_waits_for_the_collector() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    dead = wal_stream(writer.node.incarnation)
    await writer.abort()
    heir = await Writer.start(url)
    await take_over(heir.node)
    while await heir.node.leader(TOPIC, 0).log.tier():
        pass
    await heir.node.maintenance.record_tiered_streams()
    report = await looked_at(url)
    assert {row.severity for row in report.findings} == {Severity.NOTE}
    assert report.ok
    await heir.node.collect()
    assert (await looked_at(url)).findings == []
    samples.objects(url).write(dead.number(0), b"landed late")
    finding = only(await looked_at(url))
    await heir.close()
    assert (finding.severity, finding.remedy) == (Severity.LEFTOVER, Remedy.RETIRE_STREAM)


async def test_a_deleted_topic_is_noted() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.node.cluster.delete_topic(TOPIC)
    report = await looked_at(url)
    await writer.close()
    assert told(report) == {"note": 1}
    assert report.ok


async def test_heartbeats_of_live_processes_are_read_and_others_are_leftovers() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    live, over = writer.node.incarnation, 0  # number 0 made the cluster
    await write_heartbeat(store, live, 1)
    report = await looked_at(url)
    assert (report.findings, report.counts["heartbeats"]) == ([], 1)
    await write_heartbeat(store, over, 1)
    finding = only(await looked_at(url))
    await writer.close()
    assert finding.key == heartbeat_key(over)
    assert (finding.severity, finding.remedy) == (Severity.LEFTOVER, Remedy.REMOVE_HEARTBEAT)
    assert finding.bytes > 0


async def test_keys_under_the_heartbeats_that_neve_never_writes() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    strange = ["meta/heartbeat/notes", heartbeat_key(9_999), f"{heartbeat_key(0)}/x"]
    for key in strange:
        samples.objects(url).write(key, b"?")
    report = await looked_at(url)
    await writer.close()
    assert {row.key for row in report.findings} == set(strange)
    assert told(report) == {"orphan": len(strange)}
    assert not any(row.repairable for row in report.findings)


async def test_a_damaged_heartbeat_is_noted_and_nothing_is_wrong() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    live = writer.node.incarnation
    await write_heartbeat(MemoryStore(samples.objects(url)), live, 1)
    samples.damage(url, heartbeat_key(live))
    report = await looked_at(url)
    await writer.close()
    finding = only(report)
    assert (finding.severity, finding.key) == (Severity.NOTE, heartbeat_key(live))
    assert report.ok
    assert report.counts["heartbeats"] == 0


def test_the_heartbeat_of_a_process_that_registers_meanwhile_is_not_unknown() -> None:
    async def main() -> Report:
        url = samples.fresh_url()
        writer = await layered(url)
        store = ListsHeartbeats(samples.objects(url))

        async def join() -> None:
            number = await ClusterLog(store).register(9, inflight=1, port=1)
            await write_heartbeat(store, number, 1)

        store.before_listing = join
        report = await verify(store, QUICK)
        await writer.close()
        return report

    assert runtime.simulate(main(), seed=1).findings == []


class ListsHeartbeats(MemoryStore):
    """Does something just before heartbeats are listed for the first time."""

    before_listing: Callable[[], Awaitable[None]] | None = None

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        step = self.before_listing
        if prefix == HEARTBEAT_PREFIX and step is not None:
            self.before_listing = None
            await step()
        return await super().list(prefix, after)


# -- a bucket in use -----------------------------------------------------------------------------


def test_an_upload_in_flight_is_no_orphan() -> None:
    async def main() -> Report:
        url = samples.fresh_url()
        writer = await layered(url)
        first, _ = await writer.segments(TOPIC, 0)
        young = first.key[:-20] + "0" * 16 + ".kfs"
        samples.objects(url).write(young, b"being uploaded")

        async def list_it() -> None:
            await runtime.sleep(5)
            samples.remove(url, young)

        listing = runtime.spawn(list_it())
        report = await looked_at(url, Options(settle_seconds=30))
        await listing
        await writer.close()
        return report

    assert runtime.simulate(main(), seed=7101).findings == []


def test_an_object_that_was_there_long_ago_needs_no_wait() -> None:
    async def main() -> float:
        url = samples.fresh_url()
        writer = await layered(url)
        first, _ = await writer.segments(TOPIC, 0)
        samples.objects(url).write(first.key[:-20] + "0" * 16 + ".kfs", b"half a pair")
        await runtime.sleep(60)
        started = runtime.monotonic()
        report = await looked_at(url, Options(settle_seconds=30))
        await writer.close()
        assert told(report) == {"orphan": 1}
        return runtime.monotonic() - started

    assert runtime.simulate(main(), seed=7102) < 1


async def test_progress_is_told() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    seen: list[tuple[str, int, int]] = []
    await verify(MemoryStore(samples.objects(url)), QUICK, progress=lambda p: seen.append(tuple(p)))
    await writer.close()
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == [
        "cluster log",
        "the store's rules",
        "streams",
        "partitions",
        "everything else",
    ]
    assert [objects for _, objects, _ in seen] == sorted(objects for _, objects, _ in seen)


async def test_no_more_is_read_at_once_than_allowed() -> None:
    url = samples.fresh_url()
    writer = await layered(url, partitions=6)
    store = Counting(samples.objects(url))
    (segment, _) = await writer.segments(TOPIC, 0)
    await verify(store, Options(settle_seconds=0, probe=False, objects_at_once=3))
    assert 1 < store.most_segments <= 3
    store.most_segments = 0
    few = Options(settle_seconds=0, probe=False, objects_at_once=3, bytes_at_once=segment.bytes)
    await verify(store, few)
    await writer.close()
    assert store.most_segments == 1


class Counting(MemoryStore):
    """How many segments are being read at the same time."""

    segments = 0
    most_segments = 0

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        if not key.endswith(".kfs"):
            return await super().get(key, bytes_max)
        self.segments += 1
        self.most_segments = max(self.most_segments, self.segments)
        try:
            await runtime.sleep(0.002)
            return await super().get(key, bytes_max)
        finally:
            self.segments -= 1


# -- runs ----------------------------------------------------------------------------------------


async def with_a_run(url: str) -> tuple[Writer, str]:
    writer = await layered(url)
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    assert await manifest.gather_runs(2)
    (run,) = manifest.state.runs
    return writer, run.key


async def test_segments_in_a_run_are_checked_like_others() -> None:
    url = samples.fresh_url()
    writer, _ = await with_a_run(url)
    report = await looked_at(url)
    assert (report.findings, report.counts["runs"], report.counts["segments"]) == ([], 1, 2)
    first, _ = await writer.segments(TOPIC, 0)
    samples.damage(url, str(first.index_key))
    finding = only(await looked_at(url))
    await writer.close()
    assert finding.key == first.index_key


async def test_a_damaged_and_a_lost_run_are_damage() -> None:
    url = samples.fresh_url()
    writer, run = await with_a_run(url)
    samples.damage(url, run)
    damaged = await looked_at(url)
    samples.remove(url, run)
    lost = await looked_at(url)
    await writer.close()
    for report in (damaged, lost):
        finding = only(report)
        assert (finding.severity, finding.key) == (Severity.DAMAGE, run)
        assert not finding.repairable
