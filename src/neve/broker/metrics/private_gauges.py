"""Metrics from private state of other components. No other module of the broker reads it."""

from __future__ import annotations

from collections.abc import Iterator

from neve.broker.metrics.group_view import GroupRow
from neve.cluster.node import Node
from neve.coordinator.groups import Groups
from neve.log.wal.writer import WalWriter


def uploads_of(writer: WalWriter) -> int:
    """Return the number of WAL objects that are being uploaded."""
    return len(writer._flights)


def tail_cached_bytes(node: Node) -> int:
    """Return the bytes of committed WAL objects that are in memory."""
    return node.own_stream.cached_bytes


def group_rows(groups: Groups) -> Iterator[GroupRow]:
    """Yield the groups that this broker coordinates."""
    for slot in groups._table:
        offsets: dict[str, dict[int, int]] = {}
        for (topic, partition), committed in slot.offsets.items():
            offsets.setdefault(topic, {})[partition] = committed.offset
        members = len(slot.group.describe().members)
        yield GroupRow(slot.group.group_id, slot.group.state.value, members, offsets)
