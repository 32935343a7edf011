"""Infers column types from JSON values.

A `Shape` counts the kinds of values that were seen at one place in the documents, except nulls.
Integers and fractions together become a double, integers beyond 64 bits a decimal(38,0). If other
kinds were seen at one place, the most frequent one decides the column's type (the first seen, if
they are equally frequent), and rows with another kind will be bad. A place where only null, `{}` or
`[]` was seen has no type and no column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from neve.lake.values.types import is_list, list_of, map_of

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
BIG_INTEGER = pa.decimal128(38, 0)
_BIG_INTEGER_MAX = 10**38
_NUMBERS = ("integer", "big", "fraction")
_LEAVES = {"boolean": pa.bool_(), "string": pa.string()}


@dataclass
class Shape:
    """One place in the documents: the count of each kind seen there, and the places inside it."""

    counts: dict[str, int] = field(default_factory=dict)
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None

    def see(self, value: object) -> None:
        kind = kind_of(value)
        if kind == "null":
            return
        self.count(kind)
        if isinstance(value, dict):
            for name, inner in value.items():
                self.inside(name).see(inner)
        elif isinstance(value, list):
            for inner in value:
                self.inside("[]", "array").see(inner)

    def see_at(self, path: Sequence[tuple[str, str]], value: object) -> None:
        """Count a value at a path of (kind, name) steps. Containers on the path count once only."""
        place = self
        for kind, name in path:
            place.counts.setdefault(kind, 1)
            place = place.inside(name, kind)
        place.see(value)

    def see_type(self, type_: pa.DataType, times: int = 1) -> None:
        """Count the kinds that an Arrow type inferred by pyarrow stands for, `times` each.

        A floating type counts as fractions. pyarrow infers it for integers past 64 bits, too; the
        caller must rule these out.
        """
        if pa.types.is_struct(type_):
            self.count("object", times)
            for each in type_:
                self.inside(each.name).see_type(each.type, times)
        elif is_list(type_):
            self.count("array", times)
            self.inside("[]", "array").see_type(type_.value_type, times)
        elif not pa.types.is_null(type_):
            self.count(_leaf_kind(type_), times)

    def merge(self, other: Shape) -> None:
        """Add the counts of another shape."""
        for kind, times in other.counts.items():
            self.count(kind, times)
        for name, shape in other.fields.items():
            self.inside(name).merge(shape)
        if other.element is not None:
            self.inside("[]", "array").merge(other.element)

    def count(self, kind: str, times: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + times

    def inside(self, name: str, kind: str = "object") -> Shape:
        if kind == "object":
            return self.fields.setdefault(name, Shape())
        self.element = self.element or Shape()
        return self.element

    def type(self) -> pa.DataType | None:
        """Return the type for this place; None if no value seen there has one."""
        found = map(self._type_of, self._kinds())
        return next((type_ for type_ in found if type_ is not None), None)

    def _kinds(self) -> list[str]:
        """Return the kinds seen here, the most frequent first. All numbers are one kind."""
        times: dict[str, int] = {}
        for kind, count in self.counts.items():
            family = "number" if kind in _NUMBERS else kind
            times[family] = times.get(family, 0) + count
        return sorted(times, key=lambda family: -times[family])

    def _type_of(self, kind: str) -> pa.DataType | None:
        if kind == "number":
            return self._number()
        if kind == "object":
            found = [(name, shape.type()) for name, shape in self.fields.items()]
            fields = [pa.field(name, type_) for name, type_ in found if type_ is not None]
            return pa.struct(fields) if fields else None
        if kind in ("array", "map"):
            inner = None if self.element is None else self.element.type()
            make = list_of if kind == "array" else map_of
            return None if inner is None else make(inner)
        return _LEAVES[kind]

    def _number(self) -> pa.DataType:
        if "fraction" in self.counts:
            return pa.float64()
        return BIG_INTEGER if "big" in self.counts else pa.int64()


def kind_of(value: object) -> str:
    """Return the JSON type, with numbers distinguished by the type that holds them."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if INT64_MIN <= value <= INT64_MAX:
            return "integer"
        return "big" if abs(value) < _BIG_INTEGER_MAX else "fraction"
    if isinstance(value, (float, Decimal)):
        return "fraction"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _leaf_kind(type_: pa.DataType) -> str:
    """Return the kind of a leaf. A time counts as a string: pyarrow inferred it from text."""
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_):
        return "integer"
    return "fraction" if pa.types.is_floating(type_) else "string"
