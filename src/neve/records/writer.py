"""Encodes Arrow columns as record batches, for writers.

Keys and values keep their nulls. Offsets count from `base_offset`; if that is None, they come from
the column `offset`, including gaps. Times come from the column `timestamp` (a timestamp of any
unit, truncated to milliseconds, or integers in milliseconds); a null or a missing column means
Kafka's "no timestamp", -1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.errors import InvalidError
from neve.records import encoder
from neve.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    assemble,
)

BATCH_BYTES_MAX = 1024 * 1024 - 1024
"""Bytes of records in one batch before compression: the default limit of brokers, with a margin."""

_SEQUENCES = 2**31
_NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def from_arrow(
    rows: pa.RecordBatch,
    *,
    codec: int = 0,
    base_offset: int | None = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[bytes]:
    """Yield batches with at most `batch_bytes_max` bytes of records before compression, in order.

    A larger record gets its own batch. Sequence numbers continue from batch to batch.
    """
    columns = _Columns(rows, base_offset)
    first = 0
    while first < rows.num_rows:
        count, size = encoder.measure(columns.fields, first, rows.num_rows, batch_bytes_max)
        section = bytearray(size)
        target = np.frombuffer(section, np.uint8)
        written = encoder.fill(columns.fields, first, count, target.ctypes.data)
        assert written == size, "the two passes of the encoder disagree"
        span = columns.span(first, count)
        sequence = base_sequence if base_sequence < 0 else (base_sequence + first) % _SEQUENCES
        yield assemble(
            section,
            record_count=count,
            last_offset_delta=span.last_offset - span.base_offset,
            base_offset=span.base_offset,
            base_timestamp=span.base_timestamp,
            max_timestamp=span.max_timestamp,
            leader_epoch=leader_epoch,
            codec=codec,
            flags=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        first += count


class _Span(NamedTuple):
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int


class _Columns:
    """The addresses that the encoder reads, and the objects that keep them alive."""

    def __init__(self, rows: pa.RecordBatch, base_offset: int | None) -> None:
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        if unknown := [name for name in given if name not in _NAMES]:
            raise InvalidError(f"unknown column {unknown[0]!r}: use {', '.join(_NAMES)}")
        self.fields = np.zeros(encoder.COLUMN_FIELDS, np.int64)
        self._alive: list[object] = []
        self._base_offset = base_offset
        self._times = _times(given.get("timestamp"), rows.num_rows)
        self._offsets = None if base_offset is not None else _offsets(given.get("offset"))
        self._numbers(encoder.TIMES, self._times)
        if self._offsets is not None:
            self._numbers(encoder.OFFSETS, self._offsets)
        for name, column in (("key", encoder.KEY), ("value", encoder.VALUE)):
            if name in given:
                self._bytes(column, _as_binary(given[name], name))
        if "headers" in given and given["headers"].null_count < rows.num_rows:
            self._headers(given["headers"])

    def span(self, first: int, count: int) -> _Span:
        times = self._times[first : first + count]
        if self._offsets is not None:
            base, last = int(self._offsets[first]), int(self._offsets[first + count - 1])
        else:
            assert self._base_offset is not None
            base = self._base_offset + first
            last = base + count - 1
        return _Span(base, last, int(times[0]), int(times.max()))

    def _numbers(self, field: int, numbers: NDArray[np.int64]) -> None:
        self._alive.append(numbers)
        self.fields[field] = numbers.ctypes.data

    def _bytes(self, column: int, array: pa.Array) -> None:
        if len(array) == 0:
            return
        valid, ends, data = array.buffers()
        self._alive.append(array)
        self.fields[column : column + 4] = (
            ends.address,
            data.address if data is not None else 0,
            valid.address if valid is not None and array.null_count else 0,
            array.offset,
        )

    def _headers(self, lists: pa.Array) -> None:
        kind = lists.type
        if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
            raise InvalidError(f"column 'headers' is {kind}: must be list<struct<key, value>>")
        pairs = lists.values
        names = _as_binary(pairs.field("key"), "headers.key")
        if names.null_count or pairs.null_count:
            raise InvalidError("column 'headers' has a header without a key")
        valid, ends = lists.buffers()[:2]
        self._alive.append(lists)
        self.fields[encoder.LIST_ENDS] = ends.address
        self.fields[encoder.LIST_VALID] = (
            valid.address if valid is not None and lists.null_count else 0
        )
        self.fields[encoder.LIST_SHIFT] = lists.offset
        self._bytes(encoder.NAME, names)
        self._bytes(encoder.ITEM, _as_binary(pairs.field("value"), "headers.value"))


def _as_binary(array: pa.Array, name: str) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (textual or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
        raise InvalidError(f"column {name!r} is {kind}: must be binary or string")
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise InvalidError(
            f"column {name!r} does not fit: {error}; write smaller batches"
        ) from error


def _times(array: pa.Array | None, rows: int) -> NDArray[np.int64]:
    if array is None:
        return np.full(rows, NO_TIMESTAMP, np.int64)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    elif not pa.types.is_int64(array.type):
        raise InvalidError(f"column 'timestamp' is {array.type}: must be a timestamp or int64")
    return _plain(pc.fill_null(array.cast(pa.int64()), NO_TIMESTAMP))


def _offsets(array: pa.Array | None) -> NDArray[np.int64]:
    if array is None or not pa.types.is_int64(array.type) or array.null_count:
        raise InvalidError("without base_offset, the column 'offset' must be int64 without nulls")
    offsets = _plain(array)
    if len(offsets) and (offsets[0] < 0 or (np.diff(offsets) <= 0).any()):
        raise InvalidError("the column 'offset' must be increasing and >= 0")
    return offsets


def _plain(array: pa.Array) -> NDArray[np.int64]:
    plain: NDArray[np.int64] = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return plain
