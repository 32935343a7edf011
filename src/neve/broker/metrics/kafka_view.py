"""Offsets and leaders under kafka_exporter's names.

These families have a sample for each partition. They are made in slices of `SLICE_ROWS` partitions,
and the labels of a partition are built once per scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from neve.cluster.node import Node
from neve.cluster.state import ClusterState
from neve.log.partition import PartitionLog
from neve.serving.addresses import Address
from neve.serving.text import header, labels_of, one, several

SLICE_ROWS = 500


class _Row(NamedTuple):
    labels: str
    leader: int
    is_preferred: bool
    replicas: int
    in_sync: int
    log: PartitionLog | None


def kafka_view(node: Node) -> Iterator[str]:
    state = node.cluster.state
    live = [broker for broker in state.brokers.values() if broker.live]
    yield one("kafka_brokers", len(live))
    addresses = [(str(Address(each.host, each.port)), str(each.node_id)) for each in live]
    yield several("kafka_broker_info", [(labels, 1) for labels in addresses])
    counts = [((topic.name,), len(topic.partitions)) for topic in state.topics.values()]
    yield several("kafka_topic_partitions", counts)
    rows: list[_Row] = []
    for part in _slices(_rows(node, state)):
        rows += part
        yield ""
    led = [(row.labels, row.log) for row in rows if row.log is not None]
    yield from _family(
        "kafka_topic_partition_current_offset",
        ((labels, log.high_watermark) for labels, log in led),
    )
    yield from _family(
        "kafka_topic_partition_oldest_offset",
        ((labels, log.manifest.state.start) for labels, log in led),
    )
    yield from _family("kafka_topic_partition_leader", ((row.labels, row.leader) for row in rows))
    shown: tuple[tuple[str, Callable[[_Row], int]], ...] = (
        ("kafka_topic_partition_leader_is_preferred", lambda row: int(row.is_preferred)),
        ("kafka_topic_partition_replicas", lambda row: row.replicas),
        ("kafka_topic_partition_in_sync_replica", lambda row: row.in_sync),
        (
            "kafka_topic_partition_under_replicated_partition",
            lambda row: int(row.in_sync < row.replicas),
        ),
    )
    for name, value in shown:
        yield from _family(name, ((row.labels, value(row)) for row in rows))


def _rows(node: Node, state: ClusterState) -> Iterator[_Row]:
    sets = node.replication.sets
    counts = {
        leader: (1 + len(followers), 1 + len(sets.in_sync(state, leader)))
        for leader, followers in sets.all(state).items()
    }
    for topic in state.topics.values():
        topic_id = topic.id_bytes
        for number, partition in enumerate(topic.partitions):
            labels = labels_of("kafka_topic_partition_leader", (str(number), topic.name))
            broker = state.brokers.get(partition.leader)
            leader_id = broker.node_id if broker is not None and broker.live else -1
            led = node.leader_of(topic_id, number)
            nodes = topic.preferred.get(number, (leader_id,))
            is_preferred = leader_id >= 0 and leader_id == nodes[0]
            # Without a leader, the last one is shown as a replica that is offline.
            replicas, in_sync = counts.get(partition.leader, (1, 0))
            log = None if led is None else led.log
            yield _Row(labels, leader_id, is_preferred, replicas, in_sync, log)


def _slices(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    while part := list(islice(rows, SLICE_ROWS)):
        yield part


def _family(name: str, values: Iterator[tuple[str, int]]) -> Iterator[str]:
    """Yield a family of integers whose labels are already text."""
    yield header(name)
    while lines := [f"{name}{labels} {value}\n" for labels, value in islice(values, SLICE_ROWS)]:
        yield "".join(lines)
