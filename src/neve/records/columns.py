"""The buffers between the kernel and Arrow: allocated, filled, and wrapped as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.errors import DamagedError
from neve.records import kernel

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
UNITS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""The units of time, with their number per millisecond."""

_BITS = 0
_KEPT = {
    "offset": ((kernel.OFFSETS, 8),),
    "timestamp": ((kernel.TIMES, 8), (kernel.TIMES_VALID, _BITS)),
    "timestamp_type": ((kernel.TIME_TYPES, 4),),
    "key": ((kernel.KEY_ENDS, 4), (kernel.KEYS_VALID, _BITS)),
    "value": ((kernel.VALUE_ENDS, 4), (kernel.VALUES_VALID, _BITS)),
    "headers": ((kernel.HEADER_ENDS, 4), (kernel.HEADERS_VALID, _BITS)),
}
"""The kernel's buffers that become part of a column, with their bytes per row."""
_PASSING = {
    "key": ((kernel.KEY_SOURCES, 8),),
    "value": ((kernel.VALUE_SOURCES, 8),),
    "headers": ((kernel.HEADER_SOURCES, 16),),
}
"""The buffers that are needed only until the bytes are copied."""
_ALIGNMENT = 64


class ColumnSelection(NamedTuple):
    """The columns that a caller requested."""

    schema: pa.Schema
    unit: str


class Section(NamedTuple):
    """The decompressed records of one batch, as the kernel's `sections` describe them.

    `owner` keeps the memory at the address alive; `key` is the object that contains the batch.
    """

    owner: pa.Buffer
    row: list[int]
    key: str


class DamagedSectionError(DamagedError):
    """A section is damaged. `place` is its index among those that were decoded together."""

    def __init__(self, key: str, reason: str, place: int) -> None:
        super().__init__(key, reason)
        self.place = place


def decode(group: Sequence[Section], wanted: ColumnSelection) -> pa.RecordBatch:
    """Return the requested records of these sections, which have less than 2 GiB in total."""
    sections = np.array([section.row for section in group], np.int64)
    columns = _Columns(int(sections[:, kernel.COUNT].sum()), wanted)
    code = columns.scan(sections, UNITS[wanted.unit])
    if code != kernel.OK:
        place, position = columns.fault
        raise DamagedSectionError(
            group[place].key,
            f"the batch at offset {sections[place, kernel.BASE_OFFSET]}: {kernel.REASONS[code]} "
            f"(record at byte {position})",
            place,
        )
    return columns.record_batch(wanted, group[0].key)


class _Columns:
    """The buffers that the kernel fills, each for `capacity` rows if its column is requested.

    They are slices of two allocations: one that the columns keep, and one that is temporary.
    """

    def __init__(self, capacity: int, wanted: ColumnSelection) -> None:
        self._addresses = np.zeros(kernel.COLUMN_FIELDS, np.int64)
        self._buffers: dict[int, pa.Buffer] = {}
        self._result = np.zeros(kernel.RESULT_FIELDS, np.int64)
        for layout in (_KEPT, _PASSING):
            fields = [field for name in wanted.schema.names for field in layout.get(name, ())]
            self._allocate(fields, capacity)

    def _allocate(self, fields: list[tuple[int, int]], rows: int) -> None:
        """Allocate the buffers. Ends have one more entry than rows; all validity bits are set."""
        sizes = [(rows + 1) * row_bytes if row_bytes else rows // 8 + 1 for _, row_bytes in fields]
        aligned = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        whole = pa.allocate_buffer(sum(aligned))
        position = 0
        for (field, row_bytes), size in zip(fields, aligned, strict=True):
            self._buffers[field] = whole.slice(position, size)
            self._addresses[field] = whole.address + position
            if row_bytes == _BITS:
                np.frombuffer(whole, np.uint8, size, position).fill(0xFF)
            position += size

    def scan(self, sections: NDArray[np.int64], scale: int) -> int:
        code: int = kernel.scan(sections, scale, self._addresses, self._result)
        return code

    @property
    def fault(self) -> tuple[int, int]:
        """The section in which the scan ended, and the position in its records."""
        return int(self._result[kernel.ERROR_SECTION]), int(self._result[kernel.ERROR_POSITION])

    def record_batch(self, wanted: ColumnSelection, key: str) -> pa.RecordBatch:
        make: dict[str, Callable[[pa.DataType], pa.Array]] = {
            "offset": lambda kind: self._fixed(kind, kernel.OFFSETS),
            "timestamp": lambda kind: self._fixed(kind, kernel.TIMES),
            "timestamp_type": lambda kind: self._fixed(kind, kernel.TIME_TYPES),
            "key": lambda _: self._binary(kernel.KEY_ENDS, kernel.NULL_KEYS),
            "value": lambda _: self._binary(kernel.VALUE_ENDS, kernel.NULL_VALUES),
            "headers": lambda _: self._headers(key),
        }
        arrays = [make[field.name](field.type) for field in wanted.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)

    @property
    def _rows(self) -> int:
        return int(self._result[kernel.ROWS])

    def _validity(self, field: int, nulls: int) -> pa.Buffer | None:
        return self._buffers[field] if nulls else None

    def _fixed(self, kind: pa.DataType, field: int) -> pa.Array:
        nulls = int(self._result[kernel.NULL_TIMES]) if field == kernel.TIMES else 0
        buffers = [self._validity(kernel.TIMES_VALID, nulls), self._buffers[field]]
        return pa.Array.from_buffers(kind, self._rows, buffers, nulls)

    def _binary(self, field: int, nulls_field: int) -> pa.Array:
        """Return a key or value column. Its fields are adjacent: ends, sources, validity."""
        ends, sources = self._buffers[field], self._buffers[field + 1]
        target = pa.allocate_buffer(int(np.frombuffer(ends, np.int32)[self._rows]))
        kernel.copy(ends.address, sources.address, self._rows, target.address)
        nulls = int(self._result[nulls_field])
        buffers = [self._validity(field + 2, nulls), ends, target]
        return pa.Array.from_buffers(pa.binary(), self._rows, buffers, nulls)

    def _headers(self, key: str) -> pa.Array:
        count = int(self._result[kernel.HEADERS])
        pairs = _Headers(count, self._result)
        pairs.fill(self._rows, self._addresses, self._result, key)
        buffers = [self._buffers[kernel.HEADERS_VALID], self._buffers[kernel.HEADER_ENDS]]
        return pa.Array.from_buffers(
            HEADERS_TYPE, self._rows, buffers, children=[pairs.array(self._result)]
        )


class _Headers:
    """The keys and values of all headers, in buffers of exactly their size."""

    def __init__(self, count: int, result: NDArray[np.int64]) -> None:
        self._count = count
        self._key_ends = pa.py_buffer(np.zeros(count + 1, np.int32))
        self._keys = pa.allocate_buffer(int(result[kernel.HEADER_KEY_BYTES]))
        self._value_ends = pa.py_buffer(np.zeros(count + 1, np.int32))
        self._values = pa.allocate_buffer(int(result[kernel.HEADER_VALUE_BYTES]))
        self._valid = pa.py_buffer(np.full(count // 8 + 1, 0xFF, np.uint8))

    def fill(
        self, rows: int, columns: NDArray[np.int64], result: NDArray[np.int64], key: str
    ) -> None:
        code = kernel.fill_headers(
            rows,
            columns,
            self._key_ends.address,
            self._keys.address,
            self._value_ends.address,
            self._values.address,
            self._valid.address,
            result,
        )
        if code != kernel.OK:
            raise DamagedError(key, kernel.REASONS[code])

    def array(self, result: NDArray[np.int64]) -> pa.Array:
        nulls = int(result[kernel.NULL_HEADER_VALUES])
        values = [self._valid if nulls else None, self._value_ends, self._values]
        return pa.StructArray.from_arrays(
            [
                _text(self._count, [None, self._key_ends, self._keys]),
                pa.Array.from_buffers(pa.binary(), self._count, values, nulls),
            ],
            fields=list(HEADERS_TYPE.value_type),
        )


def _text(rows: int, buffers: list[pa.Buffer | None]) -> pa.Array:
    """Return header keys as text, with U+FFFD for bytes that are not UTF-8."""
    text = pa.Array.from_buffers(pa.string(), rows, buffers, 0)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), rows, buffers, 0)
        return pa.array([name.decode(errors="replace") for name in raw.to_pylist()], pa.string())
    return text
