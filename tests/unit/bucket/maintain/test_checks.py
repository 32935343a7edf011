"""Verifying in parts finds what verifying at once finds."""

from __future__ import annotations

from maintenance_world import filled, listed, looked_at, manifest_of
from neve.bucket.maintain.checks import verify_partition, verify_rest
from neve.bucket.verify import Options, Report
from neve.store.memory import MemoryStore
from node_world import TOPIC
from scripted_store import in_simulation

QUICK = Options(probe=False, settle_seconds=0)


def told(*reports: Report) -> list[tuple[str, str]]:
    return sorted((row.severity.value, row.key) for report in reports for row in report.findings)


@in_simulation
async def test_the_parts_together_find_what_is_wrong() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3, partitions=2)
    rows = await listed(manifest_of(node, store, 1))
    store.bucket.remove(rows[0].key)
    store.bucket.write(rows[1].key[:-20] + "0000000000000000.kfs", b"an orphan")
    store.bucket.write("topics/stray", b"?")
    store.bucket.write("wal/stray", b"?")
    reports = [await verify_partition(store, TOPIC, at, QUICK) for at in range(2)]
    rest = await verify_rest(store, QUICK)
    assert reports[0].ok
    assert not reports[1].ok
    assert told(*reports, rest) == told(await looked_at(store))
    assert len(told(*reports, rest)) == 4
    await node.close()


@in_simulation
async def test_a_healthy_bucket_is_healthy_in_parts() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3, partitions=2)
    for partition in range(2):
        report = await verify_partition(store, TOPIC, partition, QUICK)
        assert report.ok
        assert report.counts["segments"] == 3
    assert (await verify_rest(store, QUICK)).ok
    await node.close()
