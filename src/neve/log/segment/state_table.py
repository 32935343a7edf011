"""The state table of an internal partition: the newest record of each key, as in STATE sections.

Groups and their offsets are stored in ordinary partitions whose records have keys. Each segment's
bundle has the table at its end. So reading the current state takes only the last bundle and the
records after it, however long the history is, and older segments can expire.
"""

from __future__ import annotations

from collections.abc import Iterable

from neve.log.segment.sections import StateRow
from neve.records.batch import Buffer
from neve.records.reference import decode_batch

# By full name, as in Kafka: users have their own topics that begin with underscores.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def is_internal(topic: str) -> bool:
    """Return whether a topic's partitions have a state table in their bundles."""
    return topic in INTERNAL_TOPICS


class StateTable:
    """Keys and their newest values. A record without a value removes its key."""

    def __init__(self, rows: Iterable[StateRow] = ()) -> None:
        self._rows = {row.key: row for row in rows}

    def apply(self, batch: Buffer, about: str) -> None:
        """Apply the next batch, with any codec. Ignores records without a key."""
        for record in decode_batch(batch, key=about):
            if record.key is None:
                continue
            if record.value is None:
                self._rows.pop(record.key, None)
            else:
                self._rows[record.key] = StateRow(record.key, record.value, record.timestamp)

    def copy(self) -> StateTable:
        return StateTable(self._rows.values())

    def rows(self) -> tuple[StateRow, ...]:
        return tuple(self._rows.values())

    def values(self) -> dict[bytes, bytes]:
        return {key: row.value for key, row in self._rows.items()}
