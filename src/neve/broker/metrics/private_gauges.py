"""Metrics from private state of other components. No other module of the broker reads it."""

from __future__ import annotations

from neve.cluster.node import Node
from neve.log.wal.writer import WalWriter


def uploads_of(writer: WalWriter) -> int:
    """Return the number of WAL objects that are being uploaded."""
    return len(writer._flights)


def tail_cached_bytes(node: Node) -> int:
    """Return the bytes of committed WAL objects that are in memory, and of their directory.

    Those of followed streams are a part of them.
    """
    own, followed = node.own_stream, node.replication.cache.share
    return own.cached_bytes + own.directory_bytes + followed.used
