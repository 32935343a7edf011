"""Decodes flat JSON objects to columns with the compiled kernel."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.lake.values.format_contract import Rows, offsets_of
from neve.lake.values.json_kernel import rows as kernel
from neve.lake.values.types import TIMESTAMP

CELLS_MAX = 1 << 20
"""Cells (columns times rows) in one call of the kernel at most: 8 MiB."""

_KINDS = {
    pa.bool_(): kernel.BOOLEAN,
    pa.int32(): kernel.INT32,
    pa.int64(): kernel.INT64,
    pa.float32(): kernel.FLOAT,
    pa.float64(): kernel.DOUBLE,
    pa.string(): kernel.TEXT,
    pa.date32(): kernel.DATE,
    TIMESTAMP: kernel.MOMENT,
}


def is_flat(schema: pa.Schema) -> bool:
    """Return True if the kernel supports all columns.

    Their types must be scalar ones that it knows, and their names must need no escapes in JSON.
    """
    return len(schema) > 0 and all(
        each.type in _KINDS and not _needs_escapes(each.name) for each in schema
    )


def _needs_escapes(name: str) -> bool:
    return any(letter in '"\\' or letter < " " for letter in name)


class FlatJson:
    """Reads values for one schema that `is_flat`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._struct = pa.struct(list(schema))
        self._kinds = [_KINDS[each.type] for each in schema]
        names = [each.name.encode() for each in schema]
        # The field table has the addresses of the names, which lie back to back.
        self._names = pa.py_buffer(b"".join(names))
        sizes = np.array([len(name) for name in names], np.int64)
        self._fields = np.zeros((len(names), kernel.FIELD_WORDS), np.int64)
        self._fields[:, kernel.KIND] = self._kinds
        self._fields[:, kernel.NAME] = self._names.address + np.cumsum(sizes) - sizes
        self._fields[:, kernel.NAME_BYTES] = sizes
        words = [(name + b'"')[: kernel.WORD_BYTES] for name in names]
        self._fields[:, kernel.NAME_WORD] = [_word(each) for each in words]
        self._fields[:, kernel.NAME_MASK] = [_word(b"\xff" * len(each)) for each in words]
        self.rows_max = max(1, CELLS_MAX // len(names))

    def rows(self, values: pa.BinaryArray) -> tuple[pa.StructArray, Rows]:
        """Return the rows of the values that the kernel took, and the indexes of those values.

        `values` must have at most `rows_max` values and no nulls.
        """
        ends = offsets_of(values)
        data = values.buffers()[2]
        address = 0 if data is None else data.address  # without values there is no data
        room = len(values)
        cells = [pa.allocate_buffer(8 * room) for _ in self._kinds]
        valid = np.empty((len(cells), room), np.uint8)
        taken = np.empty(room, np.int64)
        fields = self._fields.copy()
        fields[:, kernel.CELLS] = [each.address for each in cells]
        fields[:, kernel.VALID] = [each.ctypes.data for each in valid]
        fields[:, kernel.SEEN_IN] = -1
        count = kernel.scan(address, ends.ctypes.data, room, fields.ctypes.data, len(fields), taken)
        arrays = [
            self._array(column, address, cells[column], valid[column, :count])
            for column in range(len(cells))
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self._struct)), taken[:count]

    def _array(
        self, column: int, data: int, cells: pa.Buffer, valid: NDArray[np.uint8]
    ) -> pa.Array:
        type_, kind, count = self._schema.field(column).type, self._kinds[column], len(valid)
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if kind == kernel.TEXT:
            return _texts(data, cells, valid, bits)
        if kind == kernel.FLOAT:
            cells = pa.py_buffer(np.frombuffer(cells, np.float64, count).astype(np.float32))
        elif kind == kernel.BOOLEAN:
            numbers = np.frombuffer(cells, np.int64, count)
            cells = pa.py_buffer(np.packbits(numbers.astype(np.bool_), bitorder="little"))
        elif kind in (kernel.INT32, kernel.DATE):
            cells = pa.py_buffer(np.frombuffer(cells, np.int64, count).astype(np.int32))
        return pa.Array.from_buffers(type_, count, [bits, cells])


def _word(start: bytes) -> int:
    """Return up to eight bytes, padded with zeros, as the int64 that the kernel loads."""
    return int.from_bytes(start.ljust(kernel.WORD_BYTES, b"\0"), sys.byteorder, signed=True)


def _texts(
    data: int, cells: pa.Buffer, valid: NDArray[np.uint8], bits: pa.Buffer | None
) -> pa.Array:
    count, marks = len(valid), valid.ctypes.data
    ends = pa.allocate_buffer(4 * (count + 1))
    target = pa.allocate_buffer(kernel.text_bytes(cells.address, marks, count))
    kernel.copy_texts(data, cells.address, marks, count, ends.address, target.address)
    return pa.Array.from_buffers(pa.string(), count, [bits, ends, target])
