"""Finds values that are probably bad in a run that the fast path rejected.

msgspec decodes each value to a type derived from the schema, about a million values a second. The
values that it rejects go to the reference decoder, the others to the fast path again. A wrong guess
only costs time.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from neve.lake.values.types import TIMESTAMP, is_list

_LEAVES: dict[pa.DataType, Any] = {
    pa.bool_(): bool,
    pa.int32(): Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    pa.int64(): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.date32(): str,
    TIMESTAMP: int | str,
}


class Prefilter:
    """Finds suspect values for one schema."""

    def __init__(self, struct: pa.StructType) -> None:
        self._decoder = msgspec.json.Decoder(_type(struct) | None)

    def suspects(self, values: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return a mask of the values that msgspec rejects."""
        decode = self._decoder.decode
        marks = np.zeros(len(values), np.bool_)
        for place, value in enumerate(values.to_pylist()):
            try:
                decode(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                marks[place] = True
        return marks


def _type(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        names = {f"field_{place}": each.name for place, each in enumerate(type_)}
        fields = [
            (own, _type(each.type) | None, None) for own, each in zip(names, type_, strict=True)
        ]
        return msgspec.defstruct("Row", fields, rename=names)
    if is_list(type_):
        return list[_type(type_.value_type) | None]  # type: ignore[misc]
    return _LEAVES.get(type_, int | float | str)
