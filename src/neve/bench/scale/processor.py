"""Measures the processor time that one broker spends on a change of a large cluster.

The broker leads its share, and decodes and folds the cluster log by itself. Time is real here: the
figures depend on the machine.
"""

from __future__ import annotations

from neve import runtime
from neve.bench.scale.cluster import Size, initial_state
from neve.bench.scale.link import PeerNetwork, SimulatedLink
from neve.cluster.fold import ClusterRules
from neve.cluster.log import ClusterLog
from neve.cluster.membership import Membership
from neve.cluster.node import Node
from neve.cluster.peer_auth import KeyPair
from neve.cluster.records import Change, Handover, Release
from neve.cluster.state import ClusterState
from neve.log.keys import cluster_log
from neve.log.series import Series, View
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore

CHANGES = 20


def measure(size: Size) -> dict[str, float]:
    """Return milliseconds of processor time for each of several events of the cluster log."""
    return runtime.run(_measured(size))


async def _measured(size: Size) -> dict[str, float]:
    settings, bucket = Settings(), MemoryBucket()
    first = View(size.brokers + 1, initial_state(size))
    await Series(MemoryStore(bucket), cluster_log(), ClusterRules()).checkpoint(first)
    other, own = ClusterLog(MemoryStore(bucket)), ClusterLog(MemoryStore(bucket))
    await other.refresh()
    began = runtime.cpu_seconds()
    await own.refresh()
    loaded = runtime.cpu_seconds() - began
    incarnation = size.brokers
    own.incarnation = incarnation
    node = Node(
        MemoryStore(bucket),
        settings,
        own,
        incarnation,
        node_id=incarnation,
        key_pair=KeyPair.generate(),
        linger_ms=0,
        join_bytes=0,
    )
    node.takeover.cluster_changed(ClusterState(), own.state)
    await node.takeover.lead()
    link = SimulatedLink(PeerNetwork(), node)
    membership = Membership(node, link, settings.cluster)
    node.replication.start(link)
    spent = []
    for change in range(CHANGES):
        await other.propose(lambda state, number=change: _moved(state, number))  # type: ignore[misc]
        began = runtime.cpu_seconds()
        await own.refresh()
        node.takeover.unled()
        await membership.rebalancer.run_if_due()
        spent.append(runtime.cpu_seconds() - began)
    await node.replication.close()
    await node.abort()
    await link.close()
    # The first change finds nothing in memory from a state before.
    return {
        "cpu.checkpoint": loaded * 1000,
        "cpu.change": sum(spent[1:]) / len(spent[1:]) * 1000,
    }


def _moved(state: ClusterState, change: int) -> Change:
    """Return a release of one partition, between two brokers that are not measured."""
    topic_id = sorted(state.topics)[change % len(state.topics)]
    number = change % 2  # led by one of the first brokers, or moved to one
    partition = state.topics[topic_id].partitions[number]
    successor = 1 if partition.leader != 1 else 2
    row = Handover(
        topic_id=topic_id,
        partition=number,
        epoch=partition.epoch,
        end=0,
        end_offset=0,
        successor=successor,
    )
    return Release((row,))
