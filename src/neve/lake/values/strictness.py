"""Values with a field that no column can be made for, told from those that fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from neve.lake.values.decoded import NO_ROWS, BadValue, Decoded, Piece, ValueFormat, assemble, nulls


def decode_strictly(format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
    """As `format_.decode`, but a value with a field that `schema` lacks is a bad one."""
    pieces = list(_pieces(format_, values, schema, 0))
    return assemble(pieces, schema, len(values))


def _pieces(
    format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema, first: int
) -> list[Piece]:
    """Formats tell of a whole array whether it has such fields: halves are asked until it is one
    value. Few values have them, or the table would have grown.
    """
    decoded = format_.decode(values, schema)
    if decoded.unknown is None:
        bad = [BadValue(first + each.row, each.reason) for each in decoded.bad]
        good = np.asarray(decoded.good, np.int64) + first
        return [Piece(decoded.rows.to_struct_array(), good, bad)]
    if len(values) == 1:
        names = ", ".join(decoded.unknown.names)
        reason = f"the table has no column for {names}, and cannot get one"
        return [Piece(nulls(0, schema), NO_ROWS, [BadValue(first, reason)])]
    middle = len(values) // 2
    return [
        *_pieces(format_, values.slice(0, middle), schema, first),
        *_pieces(format_, values.slice(middle), schema, first + middle),
    ]
