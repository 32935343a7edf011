"""Equality deletes: a delete file lists values of some columns, and deletes all older rows with
the same values. Null equals null, as Iceberg's format defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import DamagedError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField


def fields_by_id(metadata: TableMetadata, ids: Iterable[int]) -> list[NestedField]:
    """Return columns by field id, including dropped ones."""
    current = metadata.schema()
    schemas: list[Schema] = [current, *reversed(metadata.schemas)]
    found = []
    for number in ids:
        for schema in schemas:
            field = next((each for each in schema.fields if each.field_id == number), None)
            if field is not None:
                found.append(field)
                break
        else:
            raise DamagedError("", f"an equality delete has the unknown column {number}")
    return found


class Deleted:
    """The deleted values of one set of columns."""

    def __init__(self, columns: Sequence[int], rows: Sequence[pa.RecordBatch]) -> None:
        self.columns = tuple(columns)
        table = pa.Table.from_batches(rows) if rows else None
        self._single = table is not None and len(self.columns) == 1
        self._values = table.column(0).combine_chunks() if table and self._single else None
        self._tuples = set() if table is None or self._single else set(_tuples(table.columns))

    def left(self, batch: pa.RecordBatch, position: Callable[[int], int]) -> pa.RecordBatch:
        """Return the rows of a batch that are not deleted."""
        columns = [batch.column(position(number)) for number in self.columns]
        if self._values is not None:
            gone = pc.is_in(columns[0], value_set=self._values.cast(columns[0].type))
            return batch.filter(pc.invert(gone))
        if not self._tuples:
            return batch
        return batch.filter(pa.array([row not in self._tuples for row in _tuples(columns)]))


def _tuples(columns: Sequence[pa.Array]) -> Iterable[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in columns), strict=True)
