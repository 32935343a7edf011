"""Find the invalid records of a refused batch, for `record_errors` of the response.

The batch header is enough to refuse a batch. To find the records, a thread decompresses the batch,
within bounds. Beyond them the response has an error message, but no record errors.
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
"""The largest size of a decompressed batch: several times that of ordinary producers."""
UNPACKED_AT_ONCE_MAX = 2
"""How many produced batches are decompressed at once, to search or to recompress them."""
RECORDS_MAX = 100_000
"""Batches with more records are not searched."""
INVALID_RECORDS_MAX = 1_000
"""How many records one response names."""


class InvalidRecord(NamedTuple):
    """The position of a record in its batch, and the reason why it is invalid."""

    batch_index: int
    reason: str


class InvalidTimesError(TimestampError):
    """Records of a batch have times that their topic does not allow."""

    def __init__(self, name: str, header: BatchHeader, earliest_ms: int, latest_ms: int) -> None:
        super().__init__(
            f"{name}: the time {header.max_timestamp} is further from now than "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"
        )
        self._record_count = header.record_count
        self._earliest_ms = max(earliest_ms, 0)
        self._latest_ms = latest_ms
        self.records: list[InvalidRecord] = []

    def search(self, batch: memoryview) -> None:
        """Find the invalid records. Finds none if the batch cannot be decompressed."""
        if self._record_count > RECORDS_MAX:
            return
        try:
            self.records = list(itertools.islice(self._found(batch), INVALID_RECORDS_MAX))
        except NeveError:
            self.records = []

    def _found(self, batch: memoryview) -> Iterator[InvalidRecord]:
        records = iterate_batch(batch, key="produced batch", limit=DECOMPRESSED_BYTES_MAX)
        for index, record in enumerate(records):
            time_ms = record.timestamp
            if time_ms >= 0 and not self._earliest_ms <= time_ms <= self._latest_ms:
                reason = f"the time {time_ms} is not within {self._earliest_ms}..{self._latest_ms}"
                yield InvalidRecord(index, reason)
