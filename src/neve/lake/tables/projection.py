"""Reads a data file's rows in the table's current schema: columns by field id, values unchanged.

pyiceberg's own reader turns null lists and maps of structs into empty ones, which a rewrite of
files would make permanent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY, ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.lake.tables.columns import without_large_types

BATCH_ROWS = 8192


def file_rows(table: Table, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield the files' rows in the table's current schema, file by file."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for file in files:
        batches = projected_batches(table, file)
        if batches is None:  # another program's file: pyiceberg maps its columns by name
            batches = scan.to_record_batches([FileScanTask(file)])
        yield from batches


def projected_batches(table: Table, file: DataFile) -> Iterator[pa.RecordBatch] | None:
    """Return the rows in the table's current schema; None for a file without field ids."""
    with table.io.new_input(file.file_path).open() as stream:
        if not _has_ids(pq.ParquetFile(stream).schema_arrow):
            return None
    return _read(table, file)


def _read(table: Table, file: DataFile) -> Iterator[pa.RecordBatch]:
    with table.io.new_input(file.file_path).open() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS):
            yield projected(batch, table.schema())


def projected(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Convert a file's batch, whose fields have ids, to the names and types of the schema."""
    rows = _struct(batch.to_struct_array(), schema.fields)
    return pa.RecordBatch.from_struct_array(rows)


def _has_ids(fields: Any) -> bool:
    return all(_id(field) is not None for field in fields)


def _id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(PYARROW_PARQUET_FIELD_ID_KEY)
    return None if found is None else int(found)


def _struct(array: pa.StructArray, wanted: Sequence[NestedField]) -> pa.StructArray:
    places = {_id(field): place for place, field in enumerate(array.type)}
    children = [
        _column(array.field(places[each.field_id]), each.field_type)
        if each.field_id in places
        else _absent(len(array), each)
        for each in wanted
    ]
    fields = [pa.field(each.name, child.type) for each, child in zip(wanted, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))


def _absent(count: int, field: NestedField) -> pa.Array:
    """Return the values of a column that is newer than the file."""
    return pa.repeat(pa.scalar(field.initial_default, _arrow(field.field_type)), count)


def _column(array: pa.Array, wanted: IcebergType) -> pa.Array:
    if isinstance(wanted, StructType):
        return _struct(array, wanted.fields)
    if isinstance(wanted, ListType | MapType) and array.offset:
        # Copy a slice: its offsets and validity do not start at 0.
        array = array.take(pa.array(range(len(array)), pa.int64()))
    if isinstance(wanted, ListType):
        values = _column(array.values, wanted.element_type)
        return pa.ListArray.from_arrays(array.offsets, values, mask=_mask(array))
    if isinstance(wanted, MapType):
        keys = _column(array.keys, wanted.key_type)
        items = _column(array.items, wanted.value_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=_mask(array))
    kind = _arrow(wanted)
    return array if array.type == kind else array.cast(kind)


def _arrow(kind: IcebergType) -> pa.DataType:
    found = schema_to_pyarrow(kind, {}, False)
    return without_large_types(pa.schema([pa.field("column", found)])).field(0).type


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
