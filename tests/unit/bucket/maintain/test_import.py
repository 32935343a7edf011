"""A KafScale bucket brought under Neve's manifests, in place."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.maintain import import_kafscale as importing
from neve.bucket.maintain.import_kafscale import ImportedTopic, ImportOptions, import_kafscale
from neve.bucket.maintain.indexes import build_partition_indexes
from neve.bucket.maintain.merge import merge_partition
from neve.bucket.maintain.ownership import take_ownership
from neve.bucket.verify import Options, Severity, verify
from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.topic_rules import PartitionCountError
from neve.errors import InvalidError, NeveError
from neve.log.keys import CLUSTER_LOG_PREFIX, TOPICS_PREFIX
from neve.log.keys import manifest as manifest_keys
from neve.log.log_start import move_start
from neve.log.manifest.manifest import Manifest
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Buffer, Store
from neve.store.url import stack
from simulation.truth import read_all
from support import foreign_bucket as foreign
from support.foreign_bucket import PLACE
from support.maintenance_world import assert_clean, listed
from support.node_world import (
    CrashingStore,
    batch_of,
    copied,
    crash_everywhere,
    small_settings,
    take_over,
)
from support.scripted_store import ScriptedStore, first, in_simulation


async def imported(store: Store, **options: object) -> list[ImportedTopic]:
    result = await import_kafscale(store, ImportOptions(**options))  # type: ignore[arg-type]
    return result.topics


async def offsets(bucket: MemoryBucket, topic: str = "orders", partition: int = 0) -> list[int]:
    """What is there, by the plainest means; every value must be its offset's."""
    _, logs = await read_all(MemoryStore(bucket), topic)
    log = logs[partition]
    assert all(found == foreign.value(offset) for offset, found in log.items())
    return sorted(log)


async def read(bucket: MemoryBucket, topic: str = "orders", partition: int = 0) -> list[int]:
    """What a reader without any broker finds; every value must be its offset's."""
    stacked = stack(MemoryStore(bucket), Settings().store)
    async with await AsyncBucket.over(stacked, settings=Settings()) as reader:
        rows = [row async for row in reader.read(topic, partition)]
    assert all(row.value == foreign.value(row.offset) for row in rows)
    return [row.offset for row in rows]


async def manifest_of(store: Store, topic: str = "orders", partition: int = 0) -> Manifest:
    found = (await ClusterLog(store).refresh()).topic(topic)
    assert found is not None
    return Manifest(store, manifest_keys(topic, found.id_bytes, partition))


def originals(bucket: MemoryBucket) -> dict[str, bytes]:
    return {
        key: bytes(data)
        for key, (data, _) in bucket.objects.items()
        if key.startswith(("production/", "staging/"))
    }


@in_simulation
async def test_topics_are_there_and_no_object_was_touched() -> None:
    store = MemoryStore()
    for base in (40, 50, 60):
        foreign.add(store.bucket, base, timed=base == 50, indexed=base != 60)
    foreign.add(store.bucket, 0, place="production/orders/2")
    foreign.add(store.bucket, 7, place="production/other/0", codec=4)
    before = originals(store.bucket)
    orders, other = await imported(store)
    assert (orders.outcome, orders.partitions, orders.segments) == ("imported", 3, 4)
    assert (other.outcome, other.partitions, other.segments) == ("imported", 1, 1)
    assert any("has no index" in note for note in orders.notes)
    assert originals(store.bucket) == before
    assert await read(store.bucket) == list(range(40, 70))
    assert await read(store.bucket, partition=1) == []
    assert await read(store.bucket, partition=2) == list(range(10))
    assert await read(store.bucket, "other") == list(range(7, 17))
    await assert_clean(store)


@in_simulation
async def test_a_broker_goes_on_where_kafscale_ended() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    foreign.add(store.bucket, 10, indexed=False)
    await imported(store)
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    await take_over(node)
    topic = node.cluster.state.topic("orders")
    assert topic is not None
    assert topic.configs == {"retention.ms": "-1"}
    values = [foreign.value(20 + at).decode() for at in range(3)]
    appended = node.leader(topic.name, 0).append(batch_of(values))
    await appended.commit.wait()
    assert appended.base_offset == 20
    assert await node.leader("orders", 0).log.tier()
    assert await offsets(store.bucket) == list(range(23))
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_a_live_broker_leads_all_of_it_or_nothing() -> None:
    bucket = MemoryBucket()
    for partition in range(3):
        foreign.add(bucket, 0, place=f"production/orders/{partition}")
    node = await Node.start(MemoryStore(bucket), small_settings(), node_id=1, probe=False)
    seen: list[list[int]] = []
    running = True

    async def watch() -> None:
        while running:
            await node.cluster.refresh()
            await node.takeover.lead_unled()
            seen.append([leader.log.high_watermark for leader in node.led.partitions.values()])
            await runtime.sleep(0.001)

    watching = runtime.spawn(watch())
    slow = ScriptedStore(bucket, latency=lambda: 0.005)
    await imported(slow)
    await runtime.sleep(0.1)
    running = False
    await watching
    assert [] in seen
    assert seen[-1] == [10, 10, 10]
    assert all(each in ([], [10, 10, 10]) for each in seen)
    await node.close()


@in_simulation
async def test_it_may_be_run_again() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    await imported(store)
    before = dict(store.bucket.objects)
    (again,) = await imported(store)
    assert again.outcome == "there"
    assert store.bucket.objects == before


@pytest.mark.parametrize("indexed", [True, False])
@in_simulation
async def test_it_is_known_as_imported_after_its_segments_were_merged(indexed: bool) -> None:
    """No listed key is KafScale's then, and deleting the topic would delete the listed copy."""
    store = MemoryStore()
    for base in (0, 10, 20):
        foreign.add(store.bucket, base, indexed=indexed)
    await imported(store)
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    await take_over(node)
    topic = node.cluster.state.topic("orders")
    assert topic is not None
    values = [foreign.value(30 + at).decode() for at in range(3)]
    await node.leader(topic.name, 0).append(batch_of(values)).commit.wait()
    assert await node.leader("orders", 0).log.tier()
    await node.close()
    await merge_partition(store, "orders", 0, imported=True)
    (row,) = await listed(await manifest_of(store))
    assert (row.base, row.last, row.owned) == (0, 32, True)
    assert row.epoch >= 0
    (again,) = await imported(store)
    assert (again.outcome, again.partitions) == ("there", 1)
    bundle = str(row.index_key)
    foreign.damage(store.bucket, bundle)
    (again,) = await imported(store)
    assert again.outcome == "there"
    await move_start(await manifest_of(store), 33, end=33)
    (again,) = await imported(store)
    assert again.outcome == "refused"
    assert "delete it" not in again.reason


@in_simulation
async def test_names_that_overlap_are_refused() -> None:
    store = MemoryStore()
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    await node.topics.create("taken", 1)
    await node.topics.create("like.this", 1)
    for place in ("production/taken/0", "production/like_this/0", "production/fine/0"):
        foreign.add(store.bucket, 0, place=place)
    foreign.add(store.bucket, 0)
    foreign.add(store.bucket, 0, place="staging/orders/0")
    foreign.add(store.bucket, 0, place="wal/inside/0")
    foreign.add(store.bucket, 0, place="production/no good/0")
    topics = {(row.topic, row.namespace): row for row in await imported(store)}
    outcomes = {name: row.outcome for name, row in topics.items()}
    assert outcomes.pop(("fine", "production")) == "imported"
    assert set(outcomes.values()) == {"refused"}
    assert "already" in topics["taken", "production"].reason
    assert "--namespace" in topics["orders", "staging"].reason
    assert "own objects" in topics["inside", "wal"].reason
    (chosen,) = await imported(store, namespace="staging")
    assert chosen.outcome == "imported"
    await node.close()


@in_simulation
async def test_a_gap_is_put_on_record_and_an_overlap_refused() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    foreign.add(store.bucket, 15)
    foreign.add(store.bucket, 0, place="production/double/0")
    foreign.add(store.bucket, 5, place="production/double/0")
    double, orders = await imported(store)
    assert (double.outcome, orders.outcome) == ("refused", "imported")
    assert "same offsets" in double.reason
    assert orders.skipped_offsets == 5
    assert await read(store.bucket) == [*range(10), *range(15, 25)]
    await assert_clean(store)


@in_simulation
async def test_damage_stops_a_topic_unless_it_is_to_be_left_out() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    bad = foreign.add(store.bucket, 10)
    foreign.add(store.bucket, 20)
    foreign.damage(store.bucket, f"{bad}.kfs")
    (refused,) = await imported(store)
    assert refused.outcome == "refused"
    assert f"{bad}.kfs" in refused.reason
    (done,) = await imported(store, skip_damaged=True)
    assert (done.outcome, done.skipped_offsets) == ("imported", 10)
    assert any(f"{bad}.kfs" in note for note in done.notes)
    assert await read(store.bucket) == [*range(10), *range(20, 30)]
    await assert_clean(store)


@in_simulation
async def test_trusting_reads_edges_only() -> None:
    store = ScriptedStore()
    foreign.add(store.bucket, 0, timed=True)
    foreign.add(store.bucket, 10)
    (done,) = await imported(store, trust=True)
    assert done.outcome == "imported"
    assert not any(call.operation == "get" and call.key.endswith(".kfs") for call in store.calls)
    first, second = await listed(await manifest_of(store))
    assert (first.min_timestamp, first.max_timestamp) == (1000, 1009)
    assert second.min_timestamp < 0 < second.max_timestamp
    assert await read(store.bucket) == list(range(20))
    await assert_clean(store)


@in_simulation
async def test_half_pairs_are_named() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    stray = f"{PLACE}/segment-{10:020d}.index"
    store.bucket.write(stray, b"?")
    result = await import_kafscale(store)
    assert result.half_pairs == [stray]
    assert await offsets(store.bucket) == list(range(10))


@in_simulation
async def test_a_dry_run_makes_nothing() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    before = dict(store.bucket.objects)
    (planned,) = await imported(store, dry_run=True)
    assert (planned.outcome, planned.segments) == ("planned", 1)
    assert store.bucket.objects == before


def many(bucket: MemoryBucket, count: int) -> None:
    for at in range(count):
        foreign.add(bucket, 10 * at)


@pytest.mark.parametrize("in_runs", [False, True])
def test_killed_at_any_call_it_is_ended_by_the_next_run(
    in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_runs:
        monkeypatch.setattr(importing, "RUN_SEGMENTS_MAX", 2)
    origin = MemoryBucket()
    many(origin, 3)
    foreign.add(origin, 5, place="production/orders/1")
    runtime.simulate(ClusterLog(MemoryStore(origin)).init(), seed=1)

    async def life(store: CrashingStore) -> None:
        try:
            result = await import_kafscale(store)
            assert result.ok or store.crashed
        except Exception:
            assert store.crashed

    async def check(bucket: MemoryBucket, _: None) -> None:
        store = MemoryStore(bucket)
        topic = (await ClusterLog(store).refresh()).topic("orders")
        if topic is not None and topic.partitions:
            assert await offsets(bucket) == list(range(30))
            assert await offsets(bucket, partition=1) == list(range(5, 15))
        (again,) = await imported(store)
        assert again.outcome in ("imported", "there")
        assert await offsets(bucket) == list(range(30))
        assert await offsets(bucket, partition=1) == list(range(5, 15))
        assert originals(bucket) == originals(origin)
        await assert_clean(store)

    crash_everywhere(origin, life, check, step=2, seed=4)


@pytest.mark.parametrize("seed", range(8))
def test_two_at_once_make_one_topic(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "RUN_SEGMENTS_MAX", 2)
    origin = MemoryBucket()
    many(origin, 5)

    async def both() -> None:
        bucket = copied(origin)
        stores = [
            ScriptedStore(bucket, latency=lambda: runtime.chance().uniform(0.001, 0.02))
            for _ in range(2)
        ]
        await runtime.gather(*(_quietly(imported(store)) for store in stores))
        (again,) = await imported(MemoryStore(bucket))
        assert again.outcome in ("there", "imported")
        assert await offsets(bucket) == list(range(50))
        await assert_clean(MemoryStore(bucket))

    runtime.simulate(both(), seed=seed)


async def _quietly(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except NeveError:
        return


@pytest.mark.parametrize("in_runs", [False, True])
def test_ownership_is_taken_only_when_asked_for(
    in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_runs:
        monkeypatch.setattr(importing, "RUN_SEGMENTS_MAX", 3)

    async def run() -> None:
        store = MemoryStore()
        many(store.bucket, 5)
        foreign.add(store.bucket, 50, indexed=False, timed=True)
        before = originals(store.bucket)
        await imported(store)
        await merge_partition(store, "orders", 0, imported=True)
        assert originals(store.bucket) == before  # a copy was made, and nothing is gone
        assert await offsets(store.bucket) == list(range(60))
        await assert_clean(store)

        other = MemoryStore()
        for key, data in before.items():
            other.bucket.write(key, data)
        await imported(other)
        assert (await merge_partition(other, "orders", 0)).merged == 0
        taken = await take_ownership(other, "orders", 0)
        assert (taken.taken, taken.failed) == (6, [])
        left = originals(other.bucket)
        assert sorted(left) == sorted(key for key in before if key.endswith(".kfs"))
        assert all(row.owned for row in await listed(await manifest_of(other)))
        assert await offsets(other.bucket) == list(range(60))
        await assert_clean(other)
        assert (await take_ownership(other, "orders", 0)).taken == 0
        assert (await merge_partition(other, "orders", 0)).merged == 6
        assert originals(other.bucket) == {}
        assert await offsets(other.bucket) == list(range(60))
        await assert_clean(other)

    runtime.simulate(run(), seed=1)


def test_taking_ownership_may_be_killed_at_any_call() -> None:
    origin = MemoryBucket()

    async def make() -> None:
        many(origin, 3)
        await imported(MemoryStore(origin))

    runtime.simulate(make(), seed=1)

    async def life(store: CrashingStore) -> None:
        try:
            await take_ownership(store, "orders", 0)
        except Exception:
            assert store.crashed

    async def check(bucket: MemoryBucket, _: None) -> None:
        store = MemoryStore(bucket)
        assert await offsets(bucket) == list(range(30))
        await take_ownership(store, "orders", 0)
        assert all(row.owned for row in await listed(await manifest_of(store)))
        await merge_partition(store, "orders", 0, orphan_age_ms=0)
        assert await offsets(bucket) == list(range(30))
        assert originals(bucket) == {}
        await assert_clean(store)

    crash_everywhere(origin, life, check, step=2, seed=4)


@in_simulation
async def test_missing_indexes_of_imported_segments_are_built() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    foreign.add(store.bucket, 10, indexed=False)
    await imported(store)
    before = originals(store.bucket)
    assert len((await build_partition_indexes(store, "orders", 0)).built) == 1
    assert originals(store.bucket) == before
    assert all(row.index_key for row in await listed(await manifest_of(store)))
    await merge_partition(store, "orders", 0, imported=True)
    assert originals(store.bucket) == before
    await assert_clean(store)


@in_simulation
async def test_bundles_made_for_imported_segments_go_with_them() -> None:
    """The leader's retention says nothing of bundles: whose they are is told by their keys."""
    store = MemoryStore()
    for at in range(3):
        foreign.add(store.bucket, 10 * at, indexed=False)
    await imported(store)
    await build_partition_indexes(store, "orders", 0)
    before = originals(store.bucket)
    manifest = await manifest_of(store)
    bundles = [str(row.index_key) for row in await listed(manifest)]
    await move_start(manifest, 10, end=30)
    await manifest.collect()
    assert bundles[0] not in store.bucket.objects
    await assert_clean(store)

    # The last one stays for what it knows, until there is another.
    await move_start(manifest, 30, end=30)
    await manifest.collect()
    assert [key in store.bucket.objects for key in bundles] == [False, False, True]
    await assert_clean(store)
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    await take_over(node)
    topic = node.cluster.state.topic("orders")
    assert topic is not None
    appended = node.leader(topic.name, 0).append(batch_of([foreign.value(30).decode()]))
    await appended.commit.wait()
    assert await node.leader("orders", 0).log.tier()
    await manifest.refresh()
    await manifest.collect()
    assert bundles[2] not in store.bucket.objects
    assert originals(store.bucket) == before
    await node.close()
    await assert_clean(store)


async def killed_before_its_partitions(store: MemoryStore, **options: object) -> None:
    """An import that wrote down all lists, and died before the last change."""

    class Killed(MemoryStore):
        topics = 0

        async def create(self, key: str, data: Buffer) -> None:
            self.topics += key.startswith(TOPICS_PREFIX)
            if self.topics and key.startswith(CLUSTER_LOG_PREFIX):
                raise InvalidError("killed")
            await super().create(key, data)

    (told,) = await imported(Killed(store.bucket), **options)
    assert told.reason == "killed"


@in_simulation
async def test_an_import_that_was_not_ended_is_no_damage_and_nobody_elses() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    await killed_before_its_partitions(store)
    cluster = ClusterLog(store)
    with pytest.raises(PartitionCountError, match="is being imported"):
        await cluster.add_partitions("orders", 1)
    report = await verify(store, Options(settle_seconds=0))
    assert {row.severity for row in report.findings} == {Severity.NOTE}
    assert "import kafscale" in report.findings[0].do
    await cluster.delete_topic("orders")
    report = await verify(store, Options(settle_seconds=0))
    assert {row.severity for row in report.findings} == {Severity.NOTE}


@in_simulation
async def test_what_another_import_began_is_not_mixed_in() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0, place="production/orders/0")
    foreign.add(store.bucket, 0, place="staging/orders/1")
    await killed_before_its_partitions(store, namespace="production")
    (refused,) = await imported(store, namespace="staging")
    assert (refused.outcome, "listed other segments" in refused.reason) == ("refused", True)
    (ended,) = await imported(store, namespace="production")
    assert ended.outcome == "imported"
    assert await offsets(store.bucket) == list(range(10))


def test_a_run_that_is_doomed_while_ownership_is_taken_is_written_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importing, "RUN_SEGMENTS_MAX", 2)

    async def run() -> None:
        store = ScriptedStore()
        many(store.bucket, 4)
        await imported(store)
        await build_partition_indexes(store, "orders", 0, complete=True)
        manifest = await manifest_of(store.memory)
        doomed: list[str] = []

        async def doom() -> None:
            runs = [key for key in store.bucket.keys if "/run/" in key]
            doomed.extend(await manifest.doom(runs))

        is_number = manifest.keys.number_of
        store.when("create", lambda key: is_number(key) is not None, first(doom))
        taken = await take_ownership(store, "orders", 0)
        assert doomed
        assert taken.taken == 4
        await merge_partition(store, "orders", 0, orphan_age_ms=0)
        assert await offsets(store.bucket) == list(range(40))
        await assert_clean(store)

    runtime.simulate(run(), seed=1)


@in_simulation
async def test_a_topic_of_kafscale_does_not_become_an_internal_one() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0, place="production/__consumer_offsets/0")
    (told,) = await imported(store)
    assert (told.outcome, "one of Neve's own" in told.reason) == ("refused", True)


@in_simulation
async def test_times_of_a_segment_that_was_written_over_are_not_trusted() -> None:
    store = MemoryStore()
    key = foreign.add(store.bucket, 0, timed=True)
    store.bucket.write(f"{key}.kfst", foreign.times(0, 4))
    (told,) = await imported(store, trust=True)
    assert told.outcome == "imported"
    (row,) = await listed(await manifest_of(store))
    assert (row.last, row.max_timestamp) == (9, 2**63 - 1)
