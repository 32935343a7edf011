"""What every value format promises: each input row comes out exactly once, as good or as bad.

`Decoded.good` says which input row each output row came from, so that a caller can put the record's
offset, key and time beside the value's columns. Formats build `Piece`s, in the order of their rows,
and `assemble` joins them and checks the promise.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidError


@dataclass(frozen=True)
class BadValue:
    """An input row that has no place in the table, and why."""

    row: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """The columns of the good rows, where they came from, and what else was found.

    `unknown` has the fields that good rows carried and the schema lacks, structs holding only what
    is new in them: `evolution(schema, unknown)` says how to make room. The rows themselves are
    complete but for those fields; decode again with the evolved schema to get them.
    """

    rows: pa.RecordBatch
    good: pa.Int64Array
    bad: list[BadValue]
    unknown: pa.Schema | None = None


class ValueFormat(ABC):
    """How record values become columns. Picklable: it travels to the workers of a Spark job."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns, where they are known ahead of the data."""

    @abstractmethod
    def infer(self, values: pa.BinaryArray) -> pa.Schema:
        """The columns that a sample of values asks for; values that cannot be read have no say."""

    @abstractmethod
    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        """Values as rows of `schema`. A null value is a good row of nulls."""

    def decode_each(
        self,
        values: pa.BinaryArray,  # noqa: ARG002 (for those who can)
        schema: pa.Schema,  # noqa: ARG002
    ) -> Decoded | None:
        """Value by value, one with a field that `schema` lacks being bad; None if it cannot."""
        return None


Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Numbers of input rows."""

NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Piece:
    """A run of input rows, decoded: as many `rows` as `good`."""

    rows: pa.StructArray
    good: Rows
    bad: list[BadValue] = field(default_factory=list)


def assemble(
    pieces: Sequence[Piece], schema: pa.Schema, count: int, unknown: pa.Schema | None = None
) -> Decoded:
    """Pieces in any order as one answer, ordered by input row."""
    struct = pa.struct(list(schema))
    rows = [piece.rows for piece in pieces if len(piece.rows)]
    joined = pa.concat_arrays(rows) if len(rows) > 1 else rows[0] if rows else pa.array([], struct)
    good = pa.array(np.concatenate([NO_ROWS, *(piece.good for piece in pieces)]))
    if any(first.good[-1] > then.good[0] for first, then in _neighbours(pieces)):
        order = pc.sort_indices(good)
        joined, good = joined.take(order), good.take(order)
    bad = sorted((each for piece in pieces for each in piece.bad), key=lambda each: each.row)
    # One count short or over would put values beside the wrong offsets: never hand that out.
    assert len(joined) == len(good)
    assert len(good) + len(bad) == count
    return Decoded(batch_of(joined, schema), good, bad, unknown)


def _neighbours(pieces: Sequence[Piece]) -> list[tuple[Piece, Piece]]:
    filled = [piece for piece in pieces if len(piece.good)]
    return list(itertools.pairwise(filled))


def batch_of(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """A struct's fields as columns; a null struct is a row of nulls."""
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(rows.flatten(), schema=schema)


def nulls(count: int, schema: pa.Schema) -> pa.StructArray:
    return pa.nulls(count, pa.struct(list(schema)))


def no_column_for(names: Sequence[str]) -> str:
    """Why a value with these fields is bad."""
    return f"the table has no column for {', '.join(names)}, and cannot get one"


def check_optional(schema: pa.Schema) -> None:
    """Refuse columns that cannot be null: a tombstone is a row of nulls."""
    required = [column.name for column in schema if not column.nullable]
    if required:
        raise InvalidError(
            f"columns {', '.join(required)} are required; a record without a value has nulls in "
            "all columns: make them optional"
        )


def offsets_of(values: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Where each value begins in the array's data, and the end of the last."""
    if not len(values):
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]
