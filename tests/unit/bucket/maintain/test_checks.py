"""Verifying in parts finds what verifying at once finds, and reads no more."""

from __future__ import annotations

from collections import Counter

from neve import runtime
from neve.bucket.maintain.checks import ListedCheck, verify_rest
from neve.bucket.maintain.jobs import Job, do_here, plan_units
from neve.bucket.verify import Options, Report
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import OBJECT_BYTES_MAX
from support.maintenance_world import filled, listed, looked_at, manifest_of
from support.node_world import TOPIC
from support.scripted_store import in_simulation

QUICK = Options(probe=False, settle_seconds=0)


class CountingStore(MemoryStore):
    """Counts how often each object is read."""

    def __init__(self, bucket: MemoryBucket) -> None:
        super().__init__(bucket)
        self.reads: Counter[str] = Counter()

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        self.reads[key] += 1
        return await super().get(key, bytes_max)


def told(*reports: Report) -> list[tuple[str, str]]:
    return sorted((row.severity.value, row.key) for report in reports for row in report.findings)


async def in_parts(store: MemoryStore, partitions: int) -> list[Report]:
    check = ListedCheck(store, QUICK)
    reports = [await check.check(TOPIC, at) for at in range(partitions)]
    await check.settle()
    return reports


def harm_newest(store: MemoryStore) -> str:
    """Damage the records of the newest WAL object; its key."""
    newest = max(key for key in store.bucket.objects if key.startswith("wal/0"))
    data = bytearray(store.bucket.objects[newest][0])
    data[-1] ^= 1
    store.bucket.write(newest, bytes(data))
    return newest


@in_simulation
async def test_the_parts_together_find_what_is_wrong() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3, partitions=2)
    rows = await listed(manifest_of(node, store, 1))
    store.bucket.remove(rows[0].key)
    store.bucket.write(rows[1].key[:-20] + "0000000000000000.kfs", b"an orphan")
    store.bucket.write("topics/stray", b"?")
    store.bucket.write("wal/stray", b"?")
    harm_newest(store)
    reports = await in_parts(store, 2)
    rest = await verify_rest(store, QUICK)
    assert reports[0].ok
    assert not reports[1].ok
    assert told(*reports, rest) == told(await looked_at(store))
    assert len(told(*reports, rest)) == 5
    await node.close()


@in_simulation
async def test_a_healthy_bucket_is_healthy_in_parts() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3, partitions=2)
    for report in await in_parts(store, 2):
        assert report.ok
        assert report.counts["segments"] == 3
    rest = await verify_rest(store, QUICK)
    assert rest.ok
    assert rest.counts["offsets"] > 0
    await node.close()


@in_simulation
async def test_the_tails_of_chosen_partitions_are_checked_too() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 1, partitions=3)
    newest = harm_newest(store)  # which is of the last partition
    await node.close()
    assert (await verify_rest(store, QUICK, only={(TOPIC, 0), (TOPIC, 1)})).ok
    last = await verify_rest(store, QUICK, only={(TOPIC, 2)})
    assert told(last) == [("damage", newest)]


@in_simulation
async def test_no_object_is_read_more_often_for_there_being_more_partitions() -> None:
    store = CountingStore(MemoryBucket())
    node, _ = await filled(store, 2, partitions=6, tail=3)
    store.reads.clear()
    job = Job("verify", "memory://x", options=(("settle_seconds", 0),))
    outcomes = await do_here(store, job, await plan_units(store, job), at_once=2)
    assert all(row.ok and row.result["counts"]["segments"] == 2 for row in outcomes)
    assert (await verify_rest(store, QUICK)).ok
    large = {
        key: count
        for key, count in store.reads.items()
        if key.startswith("wal/0") or key.endswith((".kfs", ".index"))
    }
    assert len(large) >= 6 * (2 * 2 + 3)
    assert set(large.values()) == {1}
    await node.close()


@in_simulation
async def test_what_nobody_lists_is_waited_for_once() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 1, partitions=5)
    for partition in range(5):
        key = (await listed(manifest_of(node, store, partition)))[0].key
        store.bucket.write(key[:-20] + "0000000000000000.kfs", b"an orphan")
    job = Job("verify", "memory://x", options=(("settle_seconds", 30),))
    started = runtime.monotonic()
    outcomes = await do_here(store, job, await plan_units(store, job))
    assert 30 <= runtime.monotonic() - started < 60
    assert [row.result["counts"]["orphan"] for row in outcomes] == [1] * 5
    assert all(row.ok for row in outcomes)
    await node.close()
