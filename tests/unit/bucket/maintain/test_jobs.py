"""Jobs over many partitions: planned, carried out, and told, one partition at a time."""

from __future__ import annotations

import pickle

import pytest

from neve.bucket.maintain.jobs import Job, Outcome, Unit, do_here, plan_units, settings_given
from neve.cluster.log import NoTopicError
from neve.errors import InvalidError
from neve.settings import Settings, load
from neve.store.memory import MemoryStore
from support import foreign_bucket as foreign
from support.maintenance_world import assert_clean, filled, listed, manifest_of
from support.node_world import TOPIC
from support.scripted_store import ScriptedStore, in_simulation, refuse

URL = "memory://anything"


@in_simulation
async def test_every_partition_is_maintained_and_told() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 4, partitions=3)
    job = Job("merge", URL)
    units = await plan_units(store, job)
    told: list[Outcome] = []
    outcomes = await do_here(store, job, units, at_once=2, on_outcome=told.append)
    assert [(row.topic, row.partition) for row in outcomes] == [(TOPIC, at) for at in range(3)]
    assert all(row.ok and row.result["merged"] == 4 for row in outcomes)
    assert len(told) == 3
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_what_fails_in_one_keeps_no_other_back() -> None:
    store = ScriptedStore()
    node, _ = await filled(store, 4, partitions=3)
    broken = (await listed(manifest_of(node, store.memory, 1)))[0].key
    store.when("get_range", broken, refuse(InvalidError), times=None)
    job = Job("merge", URL)
    outcomes = await do_here(store, job, await plan_units(store, job))
    assert [row.ok for row in outcomes] == [True, False, True]
    await node.close()


@in_simulation
async def test_topics_and_partitions_are_chosen() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 1, partitions=3)
    await node.topics.create("other", 1)
    job = Job("verify", URL)
    assert await plan_units(store, job, ["other"]) == [Unit("other", 0)]
    assert await plan_units(store, job, None, [2]) == [Unit(TOPIC, 2)]
    with pytest.raises(NoTopicError, match="'third'"):
        await plan_units(store, job, ["third"])
    with pytest.raises(InvalidError, match="9"):
        await plan_units(store, job, None, [9])
    await node.close()


@in_simulation
async def test_each_kind_does_its_own_work() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3)
    rows = await listed(manifest_of(node, store))
    store.bucket.remove(rows[0].index_key or "")
    quick = (("settle_seconds", 0),)

    async def done(job: Job) -> Outcome:
        (outcome,) = await do_here(store, job, await plan_units(store, job))
        return outcome

    assert not (await done(Job("verify", URL, options=quick))).ok
    assert (await done(Job("build-index", URL))).result["built"] == [rows[0].key]
    assert (await done(Job("verify", URL, options=quick))).ok
    assert (await done(Job("expire", URL, dry_run=True))).result["segments"] == 3
    assert (await done(Job("merge", URL, dry_run=True))).result["merged"] == 3
    assert len(await listed(manifest_of(node, store))) == 3
    assert (await done(Job("expire", URL))).result["segments"] == 3
    await node.close()


@in_simulation
async def test_a_kafscale_bucket_gets_its_helps_and_nothing_else() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0, indexed=False)
    foreign.add(store.bucket, 0, (1,), place="production/orders/1")
    job = Job("build-index", URL, "kafscale")
    units = await plan_units(store, job)
    assert [unit.partition for unit in units] == [0, 1]  # the larger one first
    outcomes = await do_here(store, job, units)
    assert [len(row.result["indexes"]) for row in outcomes] == [1, 0]
    assert [len(row.result["times"]) for row in outcomes] == [1, 1]
    (refused, _) = await do_here(store, Job("merge", URL, "kafscale"), units)
    assert "neve import kafscale" in refused.error


def test_a_job_travels_with_its_settings() -> None:
    settings = load(flags={"segment.index.interval": 7, "store.folder.fsync": "false"})
    job = Job("merge", URL, settings=settings_given(settings), options=(("target_bytes", 5),))
    there = pickle.loads(pickle.dumps(job))
    assert there == job
    assert there.load_settings() == settings
    assert settings_given(Settings()) == ()
