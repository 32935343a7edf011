"""Computes how a table's schema must change to take rows of another schema.

The changes leave existing rows as they are: new optional fields, at any depth of structs, lists and
maps, and the widenings that Iceberg v2 allows (int to long, float to double, a decimal's
precision). Fields that the incoming rows lack stay in the table, and are null in these rows. Every
other difference is refused, with path and reason; the rest of the change can be made without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.types import is_list, list_of, plain_schema, plain_type, shown

Path = tuple[str, ...]
"""Field names from the top; `[]` is a list's element, `{}` a map's value."""


@dataclass(frozen=True)
class Evolution:
    """The changes to a table's schema, and the differences that were refused.

    `add` has top-level fields: new ones whole, existing ones with only the new fields inside them.
    `rewrite` has the refused fields that the table can take if all of its rows are rewritten, with
    their new types: integers that become doubles, and numbers that become wider decimals.
    """

    add: list[pa.Field] = field(default_factory=list)
    widen: list[tuple[Path, pa.DataType]] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)
    rewrite: list[tuple[Path, pa.DataType]] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return True if the table's schema changes."""
        return bool(self.add or self.widen)


def evolution(table: pa.Schema, incoming: pa.Schema) -> Evolution:
    """Return the change that lets `table` take rows of `incoming`."""
    found = Evolution()
    _refuse_missing(table, incoming, found)
    known = {each.name: each for each in table}
    for each in incoming:
        path = (each.name,)
        if each.name not in known:
            added = _plain_or_refused(each, path, found)
        else:
            added = _compare(known[each.name].type, each.type, path, found)
        if added is not None:
            found.add.append(pa.field(each.name, added))
    return found


def evolved(schema: pa.Schema, change: Evolution) -> pa.Schema:
    """Return the plain schema after the change; later values are decoded with it."""
    widened = dict(change.widen)
    plain = plain_schema(schema)
    current = pa.struct([_widened(each, (each.name,), widened) for each in plain])
    merged = _merged(current, pa.struct(change.add))
    return pa.schema(list(merged))


def _refuse_missing(table: pa.Schema, incoming: pa.Schema, found: Evolution) -> None:
    """Refuse required columns that the incoming rows lack: none of the rows can be written."""
    names = set(incoming.names)
    for each in table:
        if not each.nullable and each.name not in names:
            found.refused.append(((each.name,), "the table requires it and the rows lack it"))


def _plain_or_refused(each: pa.Field, path: Path, found: Evolution) -> pa.DataType | None:
    try:
        return plain_type(each.type, path)
    except InvalidError as error:
        found.refused.append((path, str(error)))
        return None


def _compare(
    old: pa.DataType, new: pa.DataType, path: Path, found: Evolution
) -> pa.DataType | None:
    """Record widenings and refusals at and below `path` in `found`.

    Returns a type with only the fields to add, or None if there are none.
    """
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _compare_structs(old, new, path, found)
    if is_list(old) and is_list(new):
        inner = _compare(old.value_type, new.value_type, (*path, "[]"), found)
        return None if inner is None else list_of(inner)
    if pa.types.is_map(old) and pa.types.is_map(new) and _same_keys(old, new):
        inner = _compare(old.item_type, new.item_type, (*path, "{}"), found)
        return None if inner is None else pa.map_(old.key_type, pa.field("value", inner))
    _compare_leaves(old, new, path, found)
    return None


def _same_keys(old: pa.MapType, new: pa.MapType) -> bool:
    return bool(plain_type(old.key_type) == plain_type(new.key_type))


def _compare_structs(
    old: pa.StructType, new: pa.StructType, path: Path, found: Evolution
) -> pa.DataType | None:
    known = {each.name: each.type for each in old}
    added = []
    for each in new:
        inside = (*path, each.name)
        if each.name in known:
            type_ = _compare(known[each.name], each.type, inside, found)
        else:
            type_ = _plain_or_refused(each, inside, found)
        if type_ is not None:
            added.append(pa.field(each.name, type_))
    return pa.struct(added) if added else None


def _compare_leaves(old: pa.DataType, new: pa.DataType, path: Path, found: Evolution) -> None:
    try:
        before, after = plain_type(old, path), plain_type(new, path)
    except InvalidError as error:
        found.refused.append((path, str(error)))
        return
    if fits(after, before):
        return
    if fits(before, after) and _can_widen(before, after):
        found.widen.append((path, after))
    else:
        reason = f"{shown(path)} is {before} in the table and {after} in the rows"
        found.refused.append((path, reason))
        if _can_rewrite(before, after):
            found.rewrite.append((path, after))


def _can_rewrite(before: pa.DataType, after: pa.DataType) -> bool:
    """Return True if a rewrite can convert the values; doubles can lose digits of long integers."""
    if pa.types.is_integer(before) and after == pa.float64():
        return True
    return pa.types.is_decimal128(after) and fits(before, after)


def fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return True if the leaf type `wide` holds every value of `narrow` exactly."""
    if narrow == wide:
        return True
    if pa.types.is_decimal128(wide):
        digits = wide.precision - wide.scale
        if pa.types.is_decimal128(narrow):
            return bool(narrow.scale <= wide.scale and narrow.precision - narrow.scale <= digits)
        return bool(
            (narrow == pa.int32() and digits >= 10) or (narrow == pa.int64() and digits >= 19)
        )
    pairs = ((pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()))
    return (narrow, wide) in pairs


def _can_widen(before: pa.DataType, after: pa.DataType) -> bool:
    """Return True if Iceberg can change the column's type without rewriting its files."""
    if pa.types.is_decimal128(before) and pa.types.is_decimal128(after):
        return bool(before.scale == after.scale)
    return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _widened(each: pa.Field, path: Path, widened: dict[Path, pa.DataType]) -> pa.Field:
    return pa.field(each.name, _widened_type(each.type, path, widened))


def _widened_type(type_: pa.DataType, path: Path, widened: dict[Path, pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_widened(each, (*path, each.name), widened) for each in type_])
    if is_list(type_):
        return list_of(_widened_type(type_.value_type, (*path, "[]"), widened))
    if pa.types.is_map(type_):
        value = _widened_type(type_.item_type, (*path, "{}"), widened)
        return pa.map_(type_.key_type, pa.field("value", value))
    return widened.get(path, type_)


def _merged(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return the old type with the fields of the new one added at the end."""
    if pa.types.is_struct(old):
        known = {each.name: each.type for each in old}
        for each in new:
            before = known.get(each.name)
            known[each.name] = each.type if before is None else _merged(before, each.type)
        return pa.struct([pa.field(name, type_) for name, type_ in known.items()])
    if is_list(old):
        return list_of(_merged(old.value_type, new.value_type))
    if pa.types.is_map(old):
        return pa.map_(old.key_type, pa.field("value", _merged(old.item_type, new.item_type)))
    return old
