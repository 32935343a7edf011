"""Which columns of a Parquet file a dictionary helps, told from a sample of its first rows.

Where values hardly repeat (offsets, keys, bodies), looking each one up in a dictionary that is then
given up costs as much as all the rest of writing, and compresses worse.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.values.types import is_list

SLICES = 8
SLICE_ROWS = 512
"""Slices from all over: neighbours are more alike than what lies apart."""

REPEATS_MIN = 4
"""How often a value of the sample occurs, on average, in a column that gets a dictionary."""


def dictionary_columns(rows: pa.Table) -> list[str]:
    """The leaves, by their paths in the file, whose values repeat."""
    sample = _sample(rows)
    leaves = (
        leaf
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        for leaf in _leaves(column, name)
    )
    return [path for path, values in leaves if _repeats(values)]


def _sample(rows: pa.Table) -> pa.RecordBatch:
    count = rows.num_rows
    if count > SLICES * SLICE_ROWS:
        step = (count - SLICE_ROWS) // (SLICES - 1)
        rows = pa.concat_tables([rows.slice(step * each, SLICE_ROWS) for each in range(SLICES)])
    return rows.combine_chunks().to_batches()[0]


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    type_ = array.type
    if pa.types.is_struct(type_):
        for place, field in enumerate(type_):
            yield from _leaves(pc.struct_field(array, [place]), f"{path}.{field.name}")
    elif pa.types.is_map(type_):
        yield from _leaves(array.keys, f"{path}.key_value.key")
        yield from _leaves(array.items, f"{path}.key_value.value")
    elif is_list(type_):
        yield from _leaves(array.flatten(), f"{path}.list.element")
    else:
        yield path, array


def _repeats(values: pa.Array) -> bool:
    distinct = pc.count_distinct(values).as_py()
    return bool(distinct * REPEATS_MIN <= len(values) - values.null_count)
