"""Values with a field that no column can be made for, told from those that fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from neve.lake.values.decoded import (
    NO_ROWS,
    BadValue,
    Decoded,
    Piece,
    ValueFormat,
    assemble,
    no_column_for,
    nulls,
)


def decode_strictly(format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
    """As `format_.decode`, but a value with a field that `schema` lacks is a bad one."""
    decoded = format_.decode(values, schema)
    if decoded.unknown is None:
        return decoded
    each = format_.decode_each(values, schema)
    if each is not None:
        return each
    pieces = list(_pieces(format_, values, schema, 0))
    return assemble(pieces, schema, len(values))


def _pieces(
    format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema, first: int
) -> list[Piece]:
    """Some formats tell only of a whole array whether it has such fields: halves are asked until
    it is one value.
    """
    decoded = format_.decode(values, schema)
    if decoded.unknown is None:
        bad = [BadValue(first + each.row, each.reason) for each in decoded.bad]
        good = np.asarray(decoded.good, np.int64) + first
        return [Piece(decoded.rows.to_struct_array(), good, bad)]
    if len(values) == 1:
        reason = no_column_for(decoded.unknown.names)
        return [Piece(nulls(0, schema), NO_ROWS, [BadValue(first, reason)])]
    middle = len(values) // 2
    return [
        *_pieces(format_, values.slice(0, middle), schema, first),
        *_pieces(format_, values.slice(middle), schema, first + middle),
    ]
