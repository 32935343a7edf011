"""The pages of a broker's HTTP port: liveness, readiness and metrics.

They exist before the broker, so that a slow start is reported as such.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neve import __version__, runtime
from neve.broker.metrics.client_view import client_view
from neve.broker.metrics.cluster_view import cluster_view
from neve.broker.metrics.group_view import group_view
from neve.broker.metrics.kafka_view import kafka_view
from neve.broker.metrics.log_view import CommitLag, log_view
from neve.broker.metrics.memory_view import MemoryUse, memory_view
from neve.broker.metrics.objects import ObjectCounts, object_view
from neve.broker.metrics.peer_view import peer_view
from neve.broker.metrics.private_gauges import tail_cached_bytes
from neve.broker.metrics.reading_view import reading_view
from neve.broker.metrics.replica_view import replica_view
from neve.broker.metrics.store_view import store_view
from neve.serving.pages import ServicePages, View, process_view

if TYPE_CHECKING:
    from neve.broker.broker import Broker

STALLED_SECONDS = 10.0
"""No commit for this long means that the store does not accept writes."""


class BrokerPages(ServicePages):
    """The pages of one process. `broker` is None until the broker has started."""

    def __init__(self, objects: ObjectCounts) -> None:
        self.objects = objects
        self.broker: Broker | None = None
        self.stopping = False
        self._lag = CommitLag()

    def unready(self) -> str | None:
        """Return the reason why the broker is not ready, or None if it is."""
        if self.stopping:
            return "stopping"
        broker = self.broker
        if broker is None:
            return "starting"
        if broker.ended.done():
            return f"ended: {broker.ended.result()}"
        if not broker.is_ready:
            return "not serving"
        seconds = self._lag.seconds(broker.node.writer)
        if seconds >= STALLED_SECONDS:
            return f"the store has taken no write for {seconds:.0f} s"
        return None

    def views(self) -> list[View]:
        broker = self.broker
        if broker is None:
            return [_OWN_PROCESS]
        return [
            _OWN_PROCESS,
            partial(client_view, broker.metrics),
            partial(store_view, broker.stack),
            partial(object_view, self.objects),
            partial(log_view, broker.node, self._lag),
            partial(cluster_view, broker.node, broker.membership),
            partial(replica_view, broker.node),
            partial(reading_view, broker.reader, broker.indexes),
            partial(memory_view, memory_uses(broker)),
            partial(peer_view, broker.peers.traffic),
            partial(kafka_view, broker.node),
            partial(group_view, broker.groups.summaries(), broker.partitions.committed_ends),
        ]


_OWN_PROCESS = partial(process_view, __version__)


def memory_uses(broker: Broker) -> list[MemoryUse]:
    """Return every large use of memory in a broker, with its bound."""
    settings, scratch = broker.settings, broker.server.scratch
    pool = scratch.pool
    return [
        MemoryUse("wal-buffer", broker.node.writer.buffered_bytes, settings.wal.buffer_bytes),
        MemoryUse("tail-cache", tail_cached_bytes(broker.node), settings.cache.tail_bytes),
        MemoryUse("indexes", broker.indexes.memory_bytes, settings.cache.index_memory_bytes),
        MemoryUse("idle-receive-buffers", pool.idle_bytes, pool.idle_bytes_max),
        MemoryUse(
            "receiving",
            scratch.receiving_bytes + scratch.kept.used,
            settings.broker.receiving_bytes_max,
        ),
        MemoryUse("process", runtime.resident_bytes(), settings.broker.memory_bytes),
        *(
            MemoryUse(share.name, share.used, share.bytes_max)
            for share in (*broker.node.memory, scratch.kept)
        ),
    ]
