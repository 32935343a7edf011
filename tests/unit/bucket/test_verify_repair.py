"""Repair: what it mends, how it goes about it, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

from neve import runtime
from neve.bucket.repair import verify_and_repair
from neve.bucket.verify import Options, Report, Severity
from neve.cluster.liveness.heartbeat import write_heartbeat
from neve.cluster.log import ClusterLog
from neve.log.keys import heartbeat_key, new_rollup_key, new_segment_key
from neve.log.manifest.state import ManifestState
from neve.log.remote import load_bundle
from neve.log.restore import load_history
from neve.store.folder import STALE_MS, FolderStore
from neve.store.memory import MemoryStore
from support import bucket_samples as samples
from support.bucket_samples import Writer

TOPIC = "events"
QUICK = Options(settle_seconds=0, probe=False)


async def layered(url: str) -> Writer:
    writer = await Writer.start(url)
    await samples.layered(writer, TOPIC)
    return writer


class Noting(MemoryStore):
    """Remembers every write, in order."""

    def __init__(self, url: str) -> None:
        super().__init__(samples.objects(url))
        self.writes: list[tuple[str, str]] = []

    async def create(self, key: str, data: object) -> None:
        self.writes.append(("create", key))
        await super().create(key, data)  # type: ignore[arg-type]

    async def put(self, key: str, data: object) -> None:
        raise AssertionError(f"{key} was overwritten")

    async def delete(self, key: str) -> None:
        self.writes.append(("delete", key))
        await super().delete(key)


async def repaired(url: str) -> tuple[Report, list[tuple[str, str]]]:
    store = Noting(url)
    return await verify_and_repair(store, QUICK), store.writes


async def test_a_healthy_bucket_is_not_touched() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    report, writes = await repaired(url)
    await writer.close()
    assert report.ok
    assert (report.repaired, writes) == ([], [])


async def test_a_lost_index_is_rebuilt_under_a_new_key_with_the_history_before_it() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    before, _ = await load_history(
        writer.stack.store, writer.node.leader(TOPIC, 0).log.manifest, TOPIC
    )
    _, second = await writer.segments(TOPIC, 0)
    samples.remove(url, str(second.index_key))
    report, _ = await repaired(url)
    assert report.ok
    assert report.findings[0].repaired
    _, now = await writer.segments(TOPIC, 0)
    assert now.index_key != second.index_key
    (await load_bundle(writer.stack.store, now)).check_all()
    after, _ = await load_history(
        writer.stack.store, writer.node.leader(TOPIC, 0).log.manifest, TOPIC
    )
    assert after.epochs.starts == before.epochs.starts
    assert after.producers.entries() == before.producers.entries()
    again, writes = await repaired(url)
    await writer.close()
    assert (again.findings, writes) == ([], [])


async def test_all_indexes_lost_at_once() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    for segment in await writer.segments(TOPIC, 0):
        samples.remove(url, str(segment.index_key))
    report, _ = await repaired(url)
    await writer.close()
    assert report.ok
    assert len(report.repaired) == 2
    assert (await repaired(url))[0].findings == []


async def test_an_orphan_is_doomed_before_it_is_deleted() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    first, _ = await writer.segments(TOPIC, 0)
    orphan = new_segment_key(first.key[: first.key.rindex("/") + 1], 80, 1, "kfs")
    samples.objects(url).write(orphan, b"half a pair")
    number = manifest.keys.number(manifest.view.position)
    report, writes = await repaired(url)
    await writer.close()
    assert report.ok
    assert writes.index(("create", number)) < writes.index(("delete", orphan))
    assert orphan not in samples.objects(url).objects
    assert [deed.key for deed in report.repaired] == [orphan, orphan]
    assert report.repaired[0].did.startswith("doomed")
    assert report.repaired[1].did.startswith("deleted")


async def test_heartbeats_go_with_their_processes_and_no_others_do() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    store = MemoryStore(samples.objects(url))
    over = await ClusterLog(store).register(9, inflight=1)
    live = await ClusterLog(store).register(9, inflight=1)
    unknown = 9_999
    for incarnation in (over, live, unknown):
        await write_heartbeat(store, incarnation, 1)
    report, writes = await repaired(url)
    await writer.close()
    assert report.ok
    assert writes == [("delete", heartbeat_key(over))]
    assert [deed.key for deed in report.repaired] == [heartbeat_key(over)]
    assert [row.key for row in report.garbage] == [heartbeat_key(unknown)]
    assert {heartbeat_key(live), heartbeat_key(unknown)} <= set(samples.objects(url).keys)


async def test_no_number_that_counts_is_ever_freed() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    keys = writer.node.writer.keys
    manifest = writer.node.leader(TOPIC, 0).log.manifest
    await manifest.checkpoint(1)
    bucket = samples.objects(url)
    before = {key for key in bucket.keys if not key.startswith("topics/")}
    waste = new_rollup_key(keys, 1)
    late = [keys.number(0), manifest.keys.number(0), waste]
    for key in late:
        bucket.write(key, b"landed late")
    report, writes = await repaired(url)
    assert report.ok
    assert sorted(key for what, key in writes if what == "delete") == sorted(late)
    assert {key for key in bucket.keys if not key.startswith("topics/")} == before
    await writer.close()


async def test_damage_is_reported_and_nothing_touched() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, _ = await writer.segments(TOPIC, 0)
    samples.damage(url, first.key)
    samples.remove(url, str(first.index_key))
    before = dict(samples.objects(url).objects)
    report, writes = await repaired(url)
    assert not report.ok
    assert (report.repaired, writes) == ([], [])
    assert samples.objects(url).objects == before
    await writer.close()


async def test_one_repairable_thing_beside_damage_is_repaired_and_the_rest_told() -> None:
    url = samples.fresh_url()
    writer = await layered(url)
    first, second = await writer.segments(TOPIC, 0)
    samples.damage(url, first.key)
    samples.remove(url, str(second.index_key))
    report, _ = await repaired(url)
    await writer.close()
    assert not report.ok
    assert [row.repaired for row in report.findings] == [False, True]
    assert report.findings[0].key == first.key


async def test_a_key_that_is_listed_after_all_survives() -> None:
    """An upload that verify took for an orphan is listed before repair comes to it."""
    url = samples.fresh_url()
    writer = await layered(url)
    await writer.append(TOPIC, 0, 20)
    log = writer.node.leader(TOPIC, 0).log
    report = Report()
    await log.tier()
    fresh = (await writer.segments(TOPIC, 0))[-1]
    from neve.bucket.repair import Repair
    from neve.bucket.verify.findings import Finding, PartitionRef, Remedy

    place = PartitionRef(TOPIC, log.topic_id.hex(), 0)
    for key in (fresh.key, str(fresh.index_key)):
        report.add(
            Finding(severity=Severity.ORPHAN, key=key, what="?", remedy=Remedy.DOOM, place=place)
        )
    await Repair(Noting(url), report).run()
    state: ManifestState = await log.manifest.refresh()
    await writer.close()
    assert not set(state.doomed) & {fresh.key, fresh.index_key}
    assert fresh.key in samples.objects(url).objects
    assert report.repaired == []


async def test_stale_temporary_files_go_and_a_live_writer_s_stay(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    writer = await Writer.start(str(tmp_path))
    await samples.layered(writer, TOPIC)
    old, young = tmp_path / ".tmp" / "left", tmp_path / ".tmp" / "live"
    for path in (old, young):
        path.write_bytes(b"half written")
    past = runtime.now_ms() / 1000 - 2 * STALE_MS / 1000
    os.utime(old, (past, past))
    seen = await store.stale_temporary()
    assert [row.key for row in seen] == [f".tmp/{old.name}"]
    report = await verify_and_repair(store, QUICK, temporary=store)
    await writer.close()
    assert report.ok
    assert [row.key for row in report.findings] == [f".tmp/{old.name}"]
    assert not old.exists()
    assert young.exists()
