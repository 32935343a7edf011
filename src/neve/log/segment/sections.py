"""The sections of an index bundle: each payload has one encoder and one decoder.

A payload is decoded only after its checksum in the bundle's directory was verified. Decoders raise
DamagedError for inconsistent payloads. They compare every count with the actual number of bytes
first, so that no count can make them allocate more memory than the bundle's size.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from neve.errors import DamagedError, InvalidError
from neve.records.batch import Buffer

RECENT_BATCHES_MAX = 5
"""Batches that a producer may have in flight, and that are remembered to detect duplicates."""
NO_OFFSET = -1

_COUNT = struct.Struct(">I")
_TRANSACTION = struct.Struct(">qqqq")
_PRODUCER = struct.Struct(">qhiqqiqH")
_RECENT_BATCH = struct.Struct(">iiqqq")
_EPOCH = struct.Struct(">iq")
_CHECKSUM = struct.Struct(">QqIIII")
_STATE_ROW = struct.Struct(">qII")
_TIMESTAMP_PAIR = np.dtype([("timestamp", ">i8"), ("offset", ">i8")])
_CRC_COLUMN = np.dtype(">u4")

Column: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Section(enum.IntEnum):
    """The kinds of index. OFFSET is the part of the bundle that KafScale reads too."""

    OFFSET = 1
    TIMESTAMP = 2
    TRANSACTION = 3
    PRODUCER_SNAPSHOT = 4
    LEADER_EPOCH = 5
    CHECKSUM = 6
    STATE = 7


VERSIONS = dict.fromkeys(Section, 1)


class Timestamps(NamedTuple):
    """The index entries at which the greatest timestamp so far grows; both columns ascend."""

    timestamp: Column
    offset: Column

    def offset_to_scan(self, timestamp: int) -> int | None:
        """Return the offset of the entry whose stretch has the first batch at or past `timestamp`.

        Returns None if there is none.
        """
        found = int(np.searchsorted(self.timestamp, timestamp))
        return int(self.offset[found]) if found < len(self.offset) else None


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class RecentBatch(NamedTuple):
    """One of a producer's last batches, to detect duplicates."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer's state; `transaction_first_offset` is NO_OFFSET outside a transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int
    recent: tuple[RecentBatch, ...]


class EpochStart(NamedTuple):
    """The offset of the first batch under a leader epoch."""

    epoch: int
    start_offset: int


class StateRow(NamedTuple):
    """One row of an internal partition's table: the newest record of a key."""

    key: bytes
    value: bytes
    timestamp: int


class Checksums(NamedTuple):
    """The CRC-32C of a segment's header, footer and stretches, and of its offset index."""

    segment_bytes: int
    last_offset: int
    header_crc: int
    footer_crc: int
    offset_index_crc: int
    stretch_crcs: Column


def encode_timestamps(timestamps: Timestamps) -> bytes:
    pairs = np.empty(len(timestamps.timestamp), _TIMESTAMP_PAIR)
    pairs["timestamp"], pairs["offset"] = timestamps
    return _COUNT.pack(len(pairs)) + pairs.tobytes()


def decode_timestamps(payload: Buffer, key: str) -> Timestamps:
    rows = _counted(payload, _TIMESTAMP_PAIR.itemsize, Section.TIMESTAMP, key)
    pairs = np.frombuffer(rows, _TIMESTAMP_PAIR)
    found = Timestamps(pairs["timestamp"].astype(np.int64), pairs["offset"].astype(np.int64))
    if len(pairs) == 0 or not (_ascends(found.timestamp) and _ascends(found.offset)):
        raise _damaged(Section.TIMESTAMP, key, "its pairs do not ascend")
    return found


def encode_transactions(transactions: Sequence[AbortedTransaction]) -> bytes:
    rows = b"".join(_TRANSACTION.pack(*each) for each in transactions)
    return _COUNT.pack(len(transactions)) + rows


def decode_transactions(payload: Buffer, key: str) -> tuple[AbortedTransaction, ...]:
    rows = _counted(payload, _TRANSACTION.size, Section.TRANSACTION, key)
    found = tuple(map(AbortedTransaction._make, _TRANSACTION.iter_unpack(rows)))
    if any(each.last_offset < each.first_offset for each in found):
        raise _damaged(Section.TRANSACTION, key, "a transaction ends before it starts")
    if not _ascends(np.array([each.last_offset for each in found], np.int64)):
        raise _damaged(Section.TRANSACTION, key, "its transactions do not ascend by their end")
    return found


def encode_producers(producers: Sequence[ProducerEntry]) -> bytes:
    """Encode producers sorted by id, so that equal states have equal encodings."""
    rows = [_COUNT.pack(len(producers))]
    for entry in sorted(producers):
        if len(entry.recent) > RECENT_BATCHES_MAX:
            raise InvalidError(
                f"producer {entry.producer_id} has {len(entry.recent)} recent batches, "
                f"at most {RECENT_BATCHES_MAX} are kept"
            )
        rows.append(_PRODUCER.pack(*entry[:-1], len(entry.recent)))
        rows.extend(_RECENT_BATCH.pack(*batch) for batch in entry.recent)
    return b"".join(rows)


def decode_producers(payload: Buffer, key: str) -> tuple[ProducerEntry, ...]:
    kind, view = Section.PRODUCER_SNAPSHOT, memoryview(payload)
    if len(view) < _COUNT.size:
        raise _damaged(kind, key, f"{len(view)} bytes are too few for a count")
    (count,) = _COUNT.unpack_from(view)
    if count * _PRODUCER.size > len(view) - _COUNT.size:
        raise _damaged(kind, key, f"{len(view)} bytes are too few for {count} producers")
    found: list[ProducerEntry] = []
    position = _COUNT.size
    try:
        for _ in range(count):
            *fields, recent_count = _PRODUCER.unpack_from(view, position)
            end = position + _PRODUCER.size + recent_count * _RECENT_BATCH.size
            if recent_count > RECENT_BATCHES_MAX:
                raise _damaged(kind, key, f"a producer has {recent_count} recent batches")
            rows = _RECENT_BATCH.iter_unpack(view[position + _PRODUCER.size : end])
            recent = tuple(map(RecentBatch._make, rows))
            found.append(ProducerEntry._make((*fields, recent)))
            position = end
    except struct.error:
        raise _damaged(kind, key, "its last producer is cut short") from None
    if position != len(view):
        raise _damaged(kind, key, f"{count} producers do not fill its {len(view)} bytes")
    if not _ascends(np.array([entry.producer_id for entry in found], np.int64)):
        raise _damaged(kind, key, "its producers do not ascend")
    return tuple(found)


def encode_epochs(epochs: Sequence[EpochStart]) -> bytes:
    return _COUNT.pack(len(epochs)) + b"".join(_EPOCH.pack(*each) for each in epochs)


def decode_epochs(payload: Buffer, key: str) -> tuple[EpochStart, ...]:
    rows = _counted(payload, _EPOCH.size, Section.LEADER_EPOCH, key)
    found = tuple(map(EpochStart._make, _EPOCH.iter_unpack(rows)))
    columns = np.array(found, np.int64).reshape(-1, 2)
    if not (_ascends(columns[:, 0]) and _ascends(columns[:, 1])):
        raise _damaged(Section.LEADER_EPOCH, key, "its epochs do not ascend")
    return found


def encode_state(rows: Sequence[StateRow]) -> bytes:
    """Encode rows sorted by key, so that equal tables have equal encodings."""
    parts = [_COUNT.pack(len(rows))]
    for key, value, timestamp in sorted(rows):
        parts += (_STATE_ROW.pack(timestamp, len(key), len(value)), key, value)
    return b"".join(parts)


def decode_state(payload: Buffer, key: str) -> tuple[StateRow, ...]:
    kind, data = Section.STATE, bytes(payload)
    if len(data) < _COUNT.size:
        raise _damaged(kind, key, f"{len(data)} bytes are too few for a count")
    (count,) = _COUNT.unpack_from(data)
    if count * _STATE_ROW.size > len(data) - _COUNT.size:
        raise _damaged(kind, key, f"{len(data)} bytes are too few for {count} rows")
    found: list[StateRow] = []
    position = _COUNT.size
    for _ in range(count):
        start = position + _STATE_ROW.size
        if start > len(data):
            raise _damaged(kind, key, "its last row is cut short")
        timestamp, key_bytes, value_bytes = _STATE_ROW.unpack_from(data, position)
        middle = start + key_bytes
        position = middle + value_bytes
        found.append(StateRow(data[start:middle], data[middle:position], timestamp))
    if position != len(data):
        raise _damaged(kind, key, f"{count} rows do not fill its {len(data)} bytes")
    if any(row.key >= after.key for row, after in itertools.pairwise(found)):
        raise _damaged(kind, key, "its keys do not ascend")
    return tuple(found)


def encode_checksums(checksums: Checksums) -> bytes:
    *scalars, stretch_crcs = checksums
    crcs = np.asarray(stretch_crcs).astype(_CRC_COLUMN)
    return _CHECKSUM.pack(*scalars, len(crcs)) + crcs.tobytes()


def decode_checksums(payload: Buffer, key: str) -> Checksums:
    view = memoryview(payload)
    if len(view) < _CHECKSUM.size:
        raise _damaged(Section.CHECKSUM, key, f"{len(view)} bytes are too few")
    *scalars, count = _CHECKSUM.unpack_from(view)
    rows = view[_CHECKSUM.size :]
    if len(rows) != count * _CRC_COLUMN.itemsize:
        raise _damaged(Section.CHECKSUM, key, f"{len(rows)} bytes do not hold {count} checksums")
    return Checksums._make((*scalars, np.frombuffer(rows, _CRC_COLUMN).astype(np.int64)))


def _counted(payload: Buffer, row_bytes: int, kind: Section, key: str) -> memoryview:
    """Return the rows after a count. Raises DamagedError unless the count matches their size."""
    view = memoryview(payload)
    if len(view) < _COUNT.size:
        raise _damaged(kind, key, f"{len(view)} bytes are too few for a count")
    (count,) = _COUNT.unpack_from(view)
    if len(view) != _COUNT.size + count * row_bytes:
        raise _damaged(kind, key, f"{len(view)} bytes do not hold {count} rows")
    return view[_COUNT.size :]


def _ascends(column: Column) -> bool:
    return bool(np.all(column[1:] > column[:-1]))


def _damaged(kind: Section, key: str, reason: str) -> DamagedError:
    return DamagedError(key, f"section {kind.name}: {reason}")
