"""The streams that this broker follows: lag, bytes kept, and the partitions that consumers read."""

from __future__ import annotations

from collections.abc import Iterator

from neve.cluster.node import Node
from neve.serving.text import one, several


def replica_view(node: Node) -> Iterator[str]:
    replication, brokers = node.replication, node.cluster.state.brokers
    rows = [
        ((str(brokers[key].node_id),), stream)
        for key, stream in sorted(replication.streams.items())
        if key in brokers
    ]
    objects = [(labels, stream.lag_objects) for labels, stream in rows]
    yield several("neve_replica_lag_objects", objects)
    seconds = [(labels, replication.shown_lag_seconds(stream)) for labels, stream in rows]
    yield several("neve_replica_lag_seconds", seconds)
    yield one("neve_replica_cached_bytes", replication.cache.share.used)
    yield one("neve_replica_partitions_open", len(replication.replicas))
