"""The search for partitions to take over: a topic is searched until all of it has leaders."""

from __future__ import annotations

from neve.cluster.node import Node
from support.node_world import create_unled, small_settings, started
from support.scripted_store import ScriptedStore, in_simulation


@in_simulation
async def test_a_partition_left_to_another_broker_is_found_once_that_one_drains() -> None:
    """Its topic has not changed then, only whose partition it should be."""
    store = ScriptedStore()
    nodes = [
        await started(store),
        await Node.start(store, small_settings(), node_id=2, probe=False),
    ]
    topic = await create_unled(nodes[0], "late", 1)
    row = (topic.topic_id, 0)
    for node in nodes:
        await node.cluster.refresh()
    chosen, other = sorted(nodes, key=lambda node: row not in node.takeover.unled())
    assert chosen.takeover.unled() == [row]
    assert other.takeover.unled() == []
    await other.cluster.set_draining(chosen.node_id, draining=True)
    assert other.takeover.unled() == [row]
    assert await other.takeover.lead_unled([row]) == {}
    assert other.leader_of(topic.id_bytes, 0) is not None
    assert other.takeover.unled() == []
    for node in nodes:
        await node.abort()


@in_simulation
async def test_a_partition_is_found_until_it_is_served() -> None:
    store = ScriptedStore()
    node = await started(store)
    topic = await create_unled(node, "late", 2)
    rows = [(topic.topic_id, number) for number in range(2)]
    assert node.takeover.unled() == rows
    assert await node.takeover.lead_unled(rows[:1]) == {}
    assert node.takeover.unled() == rows[1:]
    assert await node.takeover.lead_unled(rows[1:]) == {}
    assert node.takeover.unled() == []
    await node.abort()
