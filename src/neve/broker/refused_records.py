"""Which records of a refused batch are to blame, as Kafka's `record_errors` say it.

A batch is refused by its header alone. To name the records it has to be unpacked, which is done
beside the event loop and within bounds: past them a client learns what is wrong, not with which.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from neve.broker.errors import TimestampError
from neve.errors import NeveError
from neve.records.batch import BatchHeader
from neve.records.reference import iterate_batch
from neve.settings import MIB

DECOMPRESSED_BYTES_MAX = 16 * MIB
"""What one produced batch is decompressed to: several times what producers put into one."""
UNPACKED_AT_ONCE_MAX = 2
"""Produced batches that are decompressed at once, for whatever reason."""
RECORDS_MAX = 100_000
"""Batches of more records are not searched."""
BLAMED_MAX = 1_000
"""Records that one answer names."""


class Blamed(NamedTuple):
    """One record: its position in the batch, and what is wrong with it."""

    batch_index: int
    reason: str


class TimesRefusedError(TimestampError):
    """Records of a batch have times that their topic does not take."""

    def __init__(self, name: str, header: BatchHeader, earliest_ms: int, latest_ms: int) -> None:
        super().__init__(
            f"{name}: the time {header.max_timestamp} is further from now than "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"
        )
        self._record_count = header.record_count
        self._earliest_ms = max(earliest_ms, 0)
        self._latest_ms = latest_ms
        self.blamed: list[Blamed] = []

    def search(self, batch: memoryview) -> None:
        """Find the records to blame. A batch that cannot be unpacked has none to name."""
        if self._record_count > RECORDS_MAX:
            return
        try:
            self.blamed = list(itertools.islice(self._found(batch), BLAMED_MAX))
        except NeveError:
            self.blamed = []

    def _found(self, batch: memoryview) -> Iterator[Blamed]:
        records = iterate_batch(batch, key="produced batch", limit=DECOMPRESSED_BYTES_MAX)
        for index, record in enumerate(records):
            time_ms = record.timestamp
            if time_ms >= 0 and not self._earliest_ms <= time_ms <= self._latest_ms:
                reason = f"the time {time_ms} is not within {self._earliest_ms}..{self._latest_ms}"
                yield Blamed(index, reason)
