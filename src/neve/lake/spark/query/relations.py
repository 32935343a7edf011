"""Relations of a query as DataFrames: topics through the source `neve`, tables file by file."""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.source.columns import TYPES
from neve.lake.sql.iceberg.plan import TablePlan
from neve.lake.sql.iceberg.read import read_groups
from neve.lake.sql.model import RelationRead
from neve.lake.sql.topics import range_options


def topic_frame(spark: SparkSession, store: StoreRef, read: RelationRead) -> DataFrame:
    """Return the columns and ranges of a topic that a query needs."""
    schema = StructType([StructField(name, TYPES[name]) for name in read.columns])
    options = {**dict(store.settings), "store": store.url, "subscribe": read.relation.name}
    if store.layout != "neve":
        options["layout"] = store.layout
    if "headers" in read.columns:
        options["includeHeaders"] = "true"
    options |= range_options(read.ranges)
    return spark.read.format("neve").schema(schema).options(**options).load()


def table_frame(spark: SparkSession, plan: TablePlan) -> DataFrame:
    """Return the rows of a planned table. Each group of files is one task."""
    schema: Any = from_arrow_schema(plan.read.schema(), prefer_timestamp_ntz=True)
    if not plan.groups:
        return spark.createDataFrame(plan.read.schema().empty_table(), schema)
    read = functools.partial(read_groups, plan.read, plan.groups)
    numbers = spark.range(0, len(plan.groups), 1, len(plan.groups))
    return numbers.mapInArrow(read, schema)
