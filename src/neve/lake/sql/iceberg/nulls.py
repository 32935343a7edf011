"""Keeps lists and maps null that pyiceberg would read as empty.

pyiceberg's projection rebuilds lists and maps of structs from their offsets alone, so null becomes
empty, and `headers IS NULL` would be wrong for records without headers. pyiceberg's reader finds
the class for the projection in a global of its module, so this module replaces that global.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import pyarrow as reading
from pyiceberg.types import ListType, MapType


class _NullsKept(reading.ArrowProjectionVisitor):
    def list(
        self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(
        self,
        map_type: MapType,
        map_array: pa.Array | None,
        key_result: pa.Array | None,
        value_result: pa.Array | None,
    ) -> pa.Array | None:
        found = super().map(map_type, map_array, key_result, value_result)
        return _with_nulls_of(map_array, found)


def _with_nulls_of(source: pa.Array | None, found: pa.Array | None) -> pa.Array | None:
    """Return `found` with the nulls of `source`; its type keeps the field ids."""
    if source is None or found is None or source.null_count == found.null_count:
        return found
    mask, type_ = source.is_null(), found.type
    if pa.types.is_map(type_):
        return pa.MapArray.from_arrays(found.offsets, found.keys, found.items, type_, mask=mask)
    kind = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
    return kind.from_arrays(found.offsets, found.values, type=type_, mask=mask)


def keep_nulls() -> None:
    """Replace the class in this process."""
    reading.ArrowProjectionVisitor = _NullsKept  # type: ignore[misc]
