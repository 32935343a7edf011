"""Requests to release partitions that come together share records of the cluster log."""

from __future__ import annotations

import asyncio

from neve import runtime
from neve.cluster.node import Node
from neve.errors import UnavailableError
from neve.log.keys import CLUSTER_LOG_PREFIX
from support.node_world import small_settings, started, topic_of
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

PARTITIONS = 8


def is_record(key: str) -> bool:
    return key.startswith(CLUSTER_LOG_PREFIX)


async def two_nodes(store: ScriptedStore) -> tuple[Node, Node]:
    """A node that leads all partitions, and one that leads none."""
    owner = await started(store, partitions=PARTITIONS)
    return owner, await Node.start(store, small_settings(), node_id=2, probe=False)


def led_by(node: Node, to: Node) -> list[int]:
    rows = topic_of(node).partitions
    return [number for number, row in enumerate(rows) if row.leader == to.incarnation]


async def release(owner: Node, to: Node, number: int) -> int:
    row = topic_of(owner).topic_id, number
    return len(await owner.releases.release({row: to.incarnation}))


@in_simulation
async def test_requests_that_come_during_a_decision_share_the_next_record() -> None:
    store = ScriptedStore()
    owner, other = await two_nodes(store)
    await owner.cluster.refresh()
    first = owner.cluster.view.position
    released = await runtime.gather(
        *(release(owner, other, number) for number in range(PARTITIONS))
    )
    assert released == [1] * PARTITIONS
    assert led_by(owner, other) == list(range(PARTITIONS))
    assert owner.cluster.view.position - first == 2, "one is decided while the others wait"
    assert owner.led.partitions == {}
    await owner.abort()
    await other.abort()


@in_simulation
async def test_a_cancelled_request_leaves_its_partitions_to_the_next_one() -> None:
    """They stay stopped until the number that names them is decided."""
    store = ScriptedStore()
    owner, other = await two_nodes(store)
    store.when("create", is_record, refuse(UnavailableError, after=False), times=None)
    cancelled = runtime.spawn(release(owner, other, 0))
    await runtime.sleep(1)
    waiting = runtime.spawn(release(owner, other, 1))
    await runtime.sleep(1)
    topic = topic_of(owner)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert owner.leader_of(topic.id_bytes, 0) is None
    store.scripts.clear()
    assert await waiting == 1
    assert led_by(owner, other) == [0, 1]
    assert (topic.id_bytes, 0) not in owner.led.partitions
    await owner.abort()
    await other.abort()


@in_simulation
async def test_a_partition_stays_stopped_while_the_record_of_others_is_decided() -> None:
    store = ScriptedStore()
    owner, other = await two_nodes(store)
    decide, reached = asyncio.Event(), asyncio.Event()
    store.when("create", is_record, hold(decide, reached))
    one = runtime.spawn(release(owner, other, 0))
    await reached.wait()
    two = runtime.spawn(release(owner, other, 1))
    await runtime.sleep(1)
    topic = topic_of(owner)
    for number in (0, 1):
        assert owner.leader_of(topic.id_bytes, number) is None
    assert not two.done()
    decide.set()
    assert [await one, await two] == [1, 1]
    await owner.abort()
    await other.abort()
