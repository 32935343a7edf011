"""Parses the partitioning of a table.

`day(_kafka.timestamp)`, `bucket(16, customer.id)`, `truncate(4, name)`, or a column's name for its
plain value. A column inside a struct is named with dots. An unquoted `bucket(16, id)` in a YAML
list arrives as two elements, which are joined here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from neve.errors import InvalidError
from neve.lake.values.notation import rejoined

DEFAULT_PARTITIONING = ("day(_kafka.timestamp)",)

_CALL = re.compile(r"\s*([a-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?([^()]+?)\s*\)\s*")
_TIMES: dict[str, Callable[[], Transform[Any, Any]]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_SIZED: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}


def partition_spec(partition_by: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table with this schema. Raises InvalidError."""
    fields: list[PartitionField] = []
    for text in map(str, rejoined(partition_by)):
        transform, column = _parsed(text)
        source = _source(text, column, schema, transform)
        fields.append(
            PartitionField(
                source_id=source,
                field_id=PARTITION_FIELD_ID_START + len(fields),
                transform=transform,
                name=_name(column, transform, schema),
            )
        )
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise InvalidError(f"partition_by has a duplicate: {', '.join(partition_by)}")
    return PartitionSpec(*fields)


def _parsed(text: str) -> tuple[Transform[Any, Any], str]:
    call = _CALL.fullmatch(text)
    if call is None:
        return IdentityTransform(), text.strip()
    name, size, column = call.groups()
    if name == "identity" and size is None:
        return IdentityTransform(), column
    if name in _TIMES and size is None:
        return _TIMES[name](), column
    if name in _SIZED and size is not None and int(size) > 0:
        return _SIZED[name](int(size)), column
    raise InvalidError(
        f"partition_by {text!r}: write a column, year, month, day or hour(column), "
        "bucket(n, column) or truncate(n, column)"
    )


def _source(text: str, column: str, schema: Schema, transform: Transform[Any, Any]) -> int:
    try:
        field = schema.find_field(column)
    except ValueError as error:
        known = ", ".join(schema.column_names)
        raise InvalidError(
            f"partition_by {text!r}: column {column} does not exist; valid columns: {known}"
        ) from error
    if not field.field_type.is_primitive or not transform.can_transform(field.field_type):
        raise InvalidError(f"partition_by {text!r}: a {field.field_type} cannot be used like this")
    return field.field_id


def _name(column: str, transform: Transform[Any, Any], schema: Schema) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_")
    if isinstance(transform, IdentityTransform):
        # Only a top-level column may share its name with its partition.
        return column if column in {field.name for field in schema.fields} else plain
    word = re.sub(r"\[.*", "", str(transform))
    return f"{plain}_{word}"
