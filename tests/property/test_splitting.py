"""Rows go to the partitions that Iceberg's own functions name, one row at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from neve.lake.tables.partition_split import MICROS_PER_DAY, PartitionSplitter

SCHEMA = Schema(
    NestedField(1, "at", TimestamptzType(), required=False),
    NestedField(2, "country", StringType(), required=False),
    NestedField(3, "number", LongType(), required=True),
)
TYPES = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("country", pa.string())])
DAY = 20_500 * MICROS_PER_DAY
# Close to each other and to the turn of a day, so that batches of one day and of two are common.
NEAR = st.sampled_from([DAY - 1, DAY, DAY + 1, DAY + MICROS_PER_DAY - 1, DAY + MICROS_PER_DAY])
FAR = st.integers(-100_000 * MICROS_PER_DAY, 100_000 * MICROS_PER_DAY)
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), NEAR, NEAR, FAR), st.sampled_from([None, "NO", "AT"])),
    max_size=12,
)


def spec_of(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    rows = [
        PartitionField(source_id=source, field_id=1000 + at, transform=transform, name=f"p{at}")
        for at, (source, transform) in enumerate(fields)
    ]
    return PartitionSpec(*rows)


@pytest.mark.parametrize(
    "fields",
    [
        [(1, DayTransform())],
        [(1, HourTransform())],
        [(1, MonthTransform())],
        [(1, YearTransform())],
        [(1, DayTransform()), (2, IdentityTransform())],
        [(1, DayTransform()), (1, YearTransform())],
        [],
    ],
    ids=str,
)
@given(rows=ROWS)
@example(rows=[(DAY, "NO"), (DAY + 1, "NO")])
@example(rows=[(DAY - 1, "NO"), (DAY, "NO")])
@example(rows=[(-1, "NO"), (-MICROS_PER_DAY, None)])
def test_each_row_is_where_iceberg_would_put_it(
    fields: list[tuple[int, Transform[Any, Any]]], rows: list[tuple[int | None, str | None]]
) -> None:
    expected: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        place = tuple(
            transform.transform(SCHEMA.find_type(source))(row[source - 1])
            for source, transform in fields
        )
        expected[place].append(number)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], TYPES.field("at").type),
            pa.array([row[1] for row in rows], TYPES.field("country").type),
            pa.array(range(len(rows)), pa.int64()),
        ],
        names=["at", "country", "number"],
    )
    found = list(PartitionSplitter(spec_of(*fields), SCHEMA).split(batch))
    if not rows:
        assert [part.num_rows for _, part in found] == [0]
        return
    assert [(place, part.column("number").to_pylist()) for place, part in found] == list(
        expected.items()
    )
