"""The table of an internal partition: the newest record of each key, as its STATE section keeps it.

Groups and their offsets live in ordinary partitions whose records have keys. Folding them onto the
table before them, segment by segment, bounds how much is read to know what they amount to, however
long the history is, and lets older segments expire.
"""

from __future__ import annotations

from collections.abc import Iterable

from neve.log.segment.sections import StateRow
from neve.records.batch import Buffer
from neve.records.reference import decode_batch

# By name, as in Kafka: people have topics of their own that begin with underscores.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def is_internal(topic: str) -> bool:
    """Whether a topic's partitions carry their table in their bundles."""
    return topic in INTERNAL_TOPICS


class StateTable:
    """Keys and their newest values. A record without a value removes its key."""

    def __init__(self, rows: Iterable[StateRow] = ()) -> None:
        self._rows = {row.key: row for row in rows}

    def apply(self, batch: Buffer, about: str) -> None:
        """Take the next batch in, whatever its codec. A record without a key changes nothing."""
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
