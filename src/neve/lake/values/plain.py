"""The formats `raw` and `string`: the value as bytes or as text, without further parsing.

Both have one column, `value`. As text, a value that is not valid UTF-8 is a bad row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.format_contract import BadValue, Decoded, ValueFormat


@dataclass(frozen=True)
class RawFormat(ValueFormat):
    """The value's bytes as they are. No row is ever bad."""

    def schema(self) -> pa.Schema:
        return pa.schema([("value", pa.binary())])

    def infer(self, values: pa.BinaryArray) -> pa.Schema:  # noqa: ARG002 (nothing to look at)
        return self.schema()

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        _check_column(schema, self.schema())
        rows = pa.RecordBatch.from_arrays([values], schema=schema)
        return Decoded(rows, pa.array(np.arange(len(values))), [])


@dataclass(frozen=True)
class StringFormat(ValueFormat):
    """The value as text."""

    def schema(self) -> pa.Schema:
        return pa.schema([("value", pa.string())])

    def infer(self, values: pa.BinaryArray) -> pa.Schema:  # noqa: ARG002 (nothing to look at)
        return self.schema()

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        _check_column(schema, self.schema())
        bad = bad_text(values)
        good = pa.array(np.delete(np.arange(len(values)), [each.row for each in bad]))
        text = (values.take(good) if bad else values).cast(pa.string())
        return Decoded(pa.RecordBatch.from_arrays([text], schema=schema), good, bad)


def bad_text(values: pa.BinaryArray) -> list[BadValue]:
    """Return the rows that are not UTF-8, with the position of the first invalid byte."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        found = ((row, _text_fault(value.as_py())) for row, value in enumerate(values))
        return [BadValue(row, reason) for row, reason in found if reason is not None]
    return []


def _text_fault(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
    return None


def _check_column(schema: pa.Schema, expected: pa.Schema) -> None:
    if not schema.equals(expected):
        raise InvalidError(f"this format has the one column {expected.field(0)}, not {schema}")
