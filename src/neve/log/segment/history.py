"""The history of a partition, folded from its batches.

That is its producers, its leader epochs, its aborted transactions, and in an internal partition the
newest record of each key. The fold is pure and takes one batch at a time, in the order of offsets.
The leader that tiers, the successor that recovers and the rebuilding of a lost bundle all use it,
so their results agree. The caller decides which producers have expired (`ProducerState.retain`).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable
from typing import NamedTuple

from neve.errors import DamagedError
from neve.log.segment.sections import (
    NO_OFFSET,
    RECENT_BATCHES_MAX,
    AbortedTransaction,
    EpochStart,
    ProducerEntry,
    RecentBatch,
    StateRow,
)
from neve.log.segment.state_table import StateTable
from neve.records.batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, Buffer
from neve.records.reference import decode_batch

NO_COORDINATOR_EPOCH = -1
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers have 31 bits: 0 follows the greatest."""
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """A control batch's record that a transaction ended."""

    is_abort: bool
    coordinator_epoch: int


def decode_marker(batch: Buffer, key: str) -> Marker | None:
    """Decode a control batch; None if it does not end a transaction.

    Raises DamagedError if its record is too short.
    """
    for record in decode_batch(batch, key=key):
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        except struct.error:
            raise DamagedError(
                key, f"the control record at offset {record.offset} is cut short"
            ) from None
        return Marker(kind == _ABORT, coordinator_epoch)
    return None


def last_sequence_of(header: BatchHeader) -> int:
    """Return the sequence number of a batch's last record; it wraps around to 0."""
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK


class ProducerState:
    """Every idempotent or transactional producer that wrote to the partition."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        # First offsets of open transactions. They begin in the order of offsets, so the first entry
        # is always the lowest.
        self._open = {
            entry.producer_id: entry.transaction_first_offset
            for entry in sorted(self._entries.values(), key=lambda e: e.transaction_first_offset)
            if entry.transaction_first_offset != NO_OFFSET
        }

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> tuple[ProducerEntry, ...]:
        """All producers, ascending by id."""
        return tuple(sorted(self._entries.values()))

    def retain(self, known: Container[int]) -> None:
        """Forget all producers except these."""
        for producer_id in [each for each in self._entries if each not in known]:
            del self._entries[producer_id]
            self._open.pop(producer_id, None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open."""
        return next(iter(self._open.values()), None)

    def apply(self, header: BatchHeader, marker: Marker | None = None) -> AbortedTransaction | None:
        """Fold the next batch. Returns the transaction that it aborts, if any.

        A control batch without its marker changes nothing.
        """
        if header.producer_id < 0:
            return None
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._begun(header, entry)
        if header.is_control:
            return None if marker is None else self._end_transaction(header, marker, entry)
        last_sequence = last_sequence_of(header)
        batch = RecentBatch(
            header.base_sequence,
            last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)
        self._entries[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            last_sequence,
            header.last_offset,
            header.max_timestamp,
            entry.coordinator_epoch,
            self._open.get(header.producer_id, NO_OFFSET),
            (*entry.recent, batch)[-RECENT_BATCHES_MAX:],
        )
        return None

    def _begun(self, header: BatchHeader, before: ProducerEntry | None) -> ProducerEntry:
        """Return the entry for a new epoch: sequences start again, an open transaction stays."""
        return ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            NO_SEQUENCE,
            NO_OFFSET,
            NO_TIMESTAMP,
            NO_COORDINATOR_EPOCH if before is None else before.coordinator_epoch,
            NO_OFFSET if before is None else before.transaction_first_offset,
            (),
        )

    def _end_transaction(
        self, header: BatchHeader, marker: Marker, entry: ProducerEntry
    ) -> AbortedTransaction | None:
        first_offset = self._open.pop(header.producer_id, NO_OFFSET)
        self._entries[header.producer_id] = entry._replace(
            last_timestamp=header.max_timestamp,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_first_offset=NO_OFFSET,
        )
        if first_offset == NO_OFFSET or not marker.is_abort:
            return None
        unstable = self.first_unstable_offset
        return AbortedTransaction(
            header.producer_id,
            first_offset,
            header.last_offset,
            header.next_offset if unstable is None else unstable,
        )


class LeaderEpochs:
    """The first offset of each leader epoch, as seen in the batches."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def apply(self, header: BatchHeader) -> None:
        """Fold the next batch. Ignores an epoch that is not above the last one.

        KafScale keeps the epoch that the producer sent, so epochs may be unset or out of order.
        """
        self.begin(header.leader_epoch, header.base_offset)

    def begin(self, epoch: int, offset: int) -> None:
        latest = self._starts[-1].epoch if self._starts else -1
        if epoch > latest:
            self._starts.append(EpochStart(epoch, offset))


class History:
    """All state that is folded while a segment is built or read. `observe` is a `kfs.Observer`.

    `state` is the table of an internal partition, and None for others.
    """

    def __init__(
        self,
        key: str,
        producers: Iterable[ProducerEntry] = (),
        epochs: Iterable[EpochStart] = (),
        state: Iterable[StateRow] | None = None,
    ) -> None:
        self._key = key
        self.producers = ProducerState(producers)
        self.epochs = LeaderEpochs(epochs)
        self.state = None if state is None else StateTable(state)
        self.aborted: list[AbortedTransaction] = []

    def copy(self, key: str) -> History:
        """Return an independent copy, without the aborted transactions so far."""
        copied = History(key, self.producers.entries(), self.epochs.starts)
        copied.state = None if self.state is None else self.state.copy()
        return copied

    def observe(self, header: BatchHeader, batch: Buffer) -> None:
        """Fold the next batch."""
        self.epochs.apply(header)
        if self.state is not None and not header.is_control:
            self.state.apply(batch, self._key)
        if header.producer_id < 0:
            return
        marker = decode_marker(batch, self._key) if header.is_control else None
        aborted = self.producers.apply(header, marker)
        if aborted is not None:
            self.aborted.append(aborted)
