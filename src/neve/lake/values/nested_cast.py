"""Casts arrays between nested types: matches fields by name, and casts leaves with a function.

Fields that the target lacks are left out, and fields that the array lacks are null. If a leaf
cannot be cast, its function raises, and the whole cast fails. `widen_leaf` casts exactly: it never
rounds, truncates or returns null for a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from neve.lake.values.evolution import Path, fits
from neve.lake.values.types import is_list, list_of, shown

Leaf = Callable[[pa.Array, pa.DataType, Path], pa.Array]
"""Casts the array of leaves at a path of the schema to the target type, or raises."""


def cast_nested(array: pa.Array, target: pa.DataType, leaf: Leaf, path: Path = ()) -> pa.Array:
    """Return `array` cast to `target`. Nested arrays must not be slices."""
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return _cast_struct(array, target, leaf, path)
    if is_list(target) and is_list(array.type):
        values = cast_nested(array.values, target.value_type, leaf, (*path, "[]"))
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=_mask(array))
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        items = cast_nested(array.items, target.item_type, leaf, (*path, "{}"))
        keys = leaf(array.keys, target.key_type, (*path, "key"))
        return pa.MapArray.from_arrays(array.offsets, keys, items, target, mask=_mask(array))
    return leaf(array, target, path)


def _cast_struct(
    array: pa.StructArray, target: pa.StructType, leaf: Leaf, path: Path
) -> pa.StructArray:
    places = {field.name: place for place, field in enumerate(array.type)}
    children = [
        cast_nested(array.field(places[each.name]), each.type, leaf, (*path, each.name))
        if each.name in places
        else pa.nulls(len(array), each.type)
        for each in target
    ]
    if not children:
        return pa.array([None if null else {} for null in array.is_null().to_pylist()], target)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def widen_leaf(array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
    """Cast a leaf between types of this package, to the same type or to one that holds all values.

    Raises ArrowInvalid for any other target.
    """
    if array.type == target:
        return array
    if pa.types.is_nested(array.type) or not fits(array.type, target):
        raise pa.ArrowInvalid(f"{shown(path)} is {array.type} and not {target}")
    return array.cast(target)


def first_conflict(source: pa.DataType, target: pa.DataType, path: Path = ()) -> str | None:
    """Return why rows of `source` cannot be cast to `target`, or None if they can."""
    for inner_source, inner_target, inner_path in _common(source, target, path):
        reason = first_conflict(inner_source, inner_target, inner_path)
        if reason is not None:
            return reason
    if pa.types.is_nested(source) or pa.types.is_nested(target):
        same = source.id == target.id
    else:
        same = fits(source, target)
    return None if same else f"{shown(path)} is {source} and the column is {target}"


def surplus(source: pa.DataType, target: pa.DataType) -> pa.DataType | None:
    """Return a type with only the fields that `target` lacks, or None if it lacks none."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        known = {each.name: each.type for each in target}
        found = [
            (each.name, surplus(each.type, known[each.name]) if each.name in known else each.type)
            for each in source
        ]
        fields = [pa.field(name, type_) for name, type_ in found if type_ is not None]
        return pa.struct(fields) if fields else None
    if is_list(source) and is_list(target):
        inner = surplus(source.value_type, target.value_type)
        return None if inner is None else list_of(inner)
    if pa.types.is_map(source) and pa.types.is_map(target):
        inner = surplus(source.item_type, target.item_type)
        return None if inner is None else pa.map_(source.key_type, pa.field("value", inner))
    return None


def _common(source: pa.DataType, target: pa.DataType, path: Path) -> list[tuple[Any, Any, Path]]:
    """Return the inner types that both types have, in pairs with their paths."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        known = {each.name: each.type for each in source}
        return [
            (known[each.name], each.type, (*path, each.name))
            for each in target
            if each.name in known
        ]
    if is_list(source) and is_list(target):
        return [(source.value_type, target.value_type, (*path, "[]"))]
    if pa.types.is_map(source) and pa.types.is_map(target):
        return [
            (source.key_type, target.key_type, (*path, "key")),
            (source.item_type, target.item_type, (*path, "{}")),
        ]
    return []
