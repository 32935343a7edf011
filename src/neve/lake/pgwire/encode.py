"""Encodes Arrow batches as DataRow messages.

Each column is encoded to a binary array. Arrow then joins the lengths and values of all columns
into one buffer of messages. Python runs per row only for nested values, arrays and binary numerics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.pgwire.encode_binary import binary_of
from neve.lake.pgwire.encode_text import text_of
from neve.lake.pgwire.sqlstate import PROGRAM_LIMIT, SqlError
from neve.lake.pgwire.wire import BINARY

ROW_BYTES_MAX = 1 << 30
"""The largest message that clients accept."""
COLUMNS_MAX = 32_767

ColumnEncoder = Callable[[pa.Array], pa.Array]


def encoders(schema: pa.Schema, formats: Sequence[int]) -> list[ColumnEncoder]:
    """Return an encoder for each column, in the format that the client requested."""
    if len(schema) > COLUMNS_MAX:
        raise SqlError(
            PROGRAM_LIMIT,
            f"the result has {len(schema)} columns; at most {COLUMNS_MAX} are supported",
        )
    return [
        (binary_of if form == BINARY else text_of)(field.type)
        for field, form in zip(schema, formats, strict=True)
    ]


def data_rows(batch: pa.RecordBatch, columns: Sequence[ColumnEncoder]) -> bytes:
    """Encode a batch as consecutive DataRow messages."""
    if batch.num_rows == 0:
        return b""
    parts: list[pa.Array] = []
    row_bytes = np.full(batch.num_rows, 2 + 4 + 4 * len(columns), dtype=np.int64)
    for encode, column in zip(columns, batch.columns, strict=True):
        encoded = encode(column)
        lengths = _numpy(pc.fill_null(pc.binary_length(encoded), -1))
        row_bytes += np.maximum(lengths, 0)
        parts += [_fixed(lengths.astype(">i4")), pc.fill_null(encoded, b"")]
    if int(row_bytes.max()) > ROW_BYTES_MAX:
        raise SqlError(PROGRAM_LIMIT, "a row is larger than 1 GiB: select fewer or smaller columns")
    joined = pc.binary_join_element_wise(_headers(row_bytes, len(columns)), *parts, b"")
    return _bytes_of(joined)


def _headers(row_bytes: np.ndarray, columns: int) -> pa.Array:
    header = np.zeros(len(row_bytes), dtype=[("kind", "S1"), ("length", ">i4"), ("columns", ">i2")])
    header["kind"] = b"D"
    header["length"] = row_bytes
    header["columns"] = columns
    return _fixed(header)


def _fixed(values: np.ndarray) -> pa.Array:
    """View fixed-width values as a binary array."""
    width, count = values.dtype.itemsize, len(values)
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def _numpy(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _bytes_of(array: pa.Array) -> bytes:
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset :]
    first, end = int(offsets[0]), int(offsets[len(array)])
    return bytes(memoryview(array.buffers()[2])[first:end])


def split_batch(batch: pa.RecordBatch, bytes_each: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices of at most `bytes_each` bytes, or of one row."""
    waiting = [batch]
    while waiting:
        here = waiting.pop()
        if here.num_rows <= 1 or here.nbytes <= bytes_each:
            yield here
            continue
        half = here.num_rows // 2
        waiting += [here.slice(half), here.slice(0, half)]
