"""The format `avro`: values of one given schema, or with the ids of schemas in a registry.

Values are decoded with the schema that wrote them, then mapped to the table's columns by name.
Fields that the table lacks are reported, and fields that the writer lacks are null. If a field of a
writer does not fit its column, all rows of that writer are bad, with the reason.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.avro_decoding import AvroDecoder
from neve.lake.values.avro_schema import avro_columns
from neve.lake.values.evolution import evolution, evolved
from neve.lake.values.format_contract import (
    NO_ROWS,
    BadValue,
    Decoded,
    DecodedRun,
    Rows,
    ValueFormat,
    assemble,
    check_optional,
    nulls,
)
from neve.lake.values.nested_cast import cast_nested, first_conflict, surplus, widen_leaf
from neve.lake.values.registry import Registry, RegistryRef, UnknownSchemaError, registry_of

WIRE_HEADER_BYTES = 5
_DECODERS_MAX = 64
"""Decoders that a process caches at most, one for each version of a writer's schema."""


@dataclass(frozen=True)
class AvroFormat(ValueFormat):
    """All values have the same schema; `text` is its JSON."""

    text: str

    def schema(self) -> pa.Schema:
        return pa.schema(list(_decoder(self.text).columns.columns))

    def infer(self, values: pa.BinaryArray) -> pa.Schema:  # noqa: ARG002 (the schema is given)
        return self.schema()

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        check_optional(schema)
        filled, dense, runs = _without_nulls(values, schema)
        table = _Table(schema)
        runs += table.runs(_decoder(self.text), dense, filled)
        return assemble(runs, schema, len(values), table.unknown())


@dataclass(frozen=True)
class RegistryAvroFormat(ValueFormat):
    """Confluent's wire format: a zero byte, four bytes with the schema's id, then the record."""

    registry: RegistryRef

    def schema(self) -> None:
        """Return None: the schema is known only from the data."""

    def infer(self, values: pa.BinaryArray) -> pa.Schema:
        """Return the fields of all schemas that the sample refers to, in the order first seen."""
        registry = registry_of(self.registry)
        merged = pa.schema([])
        for schema_id in dict.fromkeys(map(_schema_id, values.drop_null().to_pylist())):
            found = _decoder_of(registry, schema_id)
            if not isinstance(found, str):
                incoming = pa.schema(list(found.columns.columns))
                merged = evolved(merged, evolution(merged, incoming))
        return merged

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        check_optional(schema)
        filled, dense, runs = _without_nulls(values, schema)
        table, registry = _Table(schema), registry_of(self.registry)
        ids = np.array([_schema_id(value) for value in dense.to_pylist()], np.int64)
        for schema_id in dict.fromkeys(ids.tolist()):
            places = np.flatnonzero(ids == schema_id)
            rows = filled[places]
            found = _decoder_of(registry, schema_id)
            if isinstance(found, str):
                runs.append(_all_bad(found, rows, schema))
            else:
                written = pa.array(
                    [value[WIRE_HEADER_BYTES:] for value in dense.take(places).to_pylist()],
                    pa.binary(),
                )
                runs += table.runs(found, written, rows)
        return assemble(runs, schema, len(values), table.unknown())


_NO_ID = -1
_NO_HEADER = "not in the registry's wire format: a zero byte and a schema's id must come first"


class _Table:
    """Maps rows of any writer to the table's columns; collects the fields that these lack."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._struct = pa.struct(list(schema))
        self._unknown = pa.schema([])

    def runs(
        self, decoder: AvroDecoder, values: pa.BinaryArray, rows: Rows
    ) -> Iterator[DecodedRun]:
        written = decoder.columns.columns
        conflict = first_conflict(written, self._struct)
        if conflict is not None:
            wider = self._wider(written)
            if wider is None:
                yield _all_bad(conflict, rows, self._schema)
            else:
                yield from self._until_wider(decoder.runs(values, rows), wider, conflict)
            return
        for run in decoder.runs(values, rows):
            if len(run.good):
                self._note(surplus(written, self._struct))
            yield DecodedRun(cast_nested(run.rows, self._struct, widen_leaf), run.good, run.bad)

    def _wider(self, written: pa.StructType) -> pa.StructType | None:
        """Return the wider columns that this writer needs, or None if they would not be enough."""
        change = evolution(self._schema, pa.schema(list(written)))
        if change.refused or not change.widen:
            return None
        names = {path[0] for path, _ in change.widen}
        return pa.struct([each for each in written if each.name in names])

    def _until_wider(
        self, runs: Iterator[DecodedRun], wider: pa.StructType, conflict: str
    ) -> Iterator[DecodedRun]:
        """Yield all rows as bad, and report the wider columns with which they would be good.

        The caller can then evolve the table and decode the values again.
        """
        for run in runs:
            if len(run.good):
                self._note(wider)
            yield _all_bad(conflict, run.good, self._schema)
            yield DecodedRun(nulls(0, self._schema), NO_ROWS, run.bad)

    def unknown(self) -> pa.Schema | None:
        return self._unknown if len(self._unknown) else None

    def _note(self, found: pa.DataType | None) -> None:
        if found is not None:
            incoming = pa.schema(list(found))
            self._unknown = evolved(self._unknown, evolution(self._unknown, incoming))


def _without_nulls(
    values: pa.BinaryArray, schema: pa.Schema
) -> tuple[Rows, pa.BinaryArray, list[DecodedRun]]:
    empty = values.is_null().to_numpy(zero_copy_only=False)
    tombstones = DecodedRun(nulls(int(empty.sum()), schema), np.flatnonzero(empty))
    return np.flatnonzero(~empty), values.drop_null(), [tombstones]


def _all_bad(reason: str, rows: Rows, schema: pa.Schema) -> DecodedRun:
    return DecodedRun(nulls(0, schema), NO_ROWS, [BadValue(row, reason) for row in rows.tolist()])


def _schema_id(value: bytes) -> int:
    if len(value) < WIRE_HEADER_BYTES or value[0] != 0:
        return _NO_ID
    return int.from_bytes(value[1:WIRE_HEADER_BYTES], "big")


@functools.lru_cache(maxsize=_DECODERS_MAX)
def _decoder(text: str, referenced: tuple[tuple[str, str], ...] = ()) -> AvroDecoder:
    named = {name: json.loads(each) for name, each in referenced}
    return AvroDecoder(avro_columns(json.loads(text), named))


def _decoder_of(registry: Registry, schema_id: int) -> AvroDecoder | str:
    """Return the decoder for a registered schema, or the reason why its rows are bad."""
    if schema_id == _NO_ID:
        return _NO_HEADER
    try:
        schema = registry.avro_schema(schema_id)
    except UnknownSchemaError as error:
        return str(error)
    try:
        return _decoder(schema.text, schema.referenced)
    except (InvalidError, ValueError, KeyError, TypeError) as error:
        return f"schema {schema_id} cannot be used: {error}"
