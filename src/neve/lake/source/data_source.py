"""What Spark finds under the name `neve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from neve.lake.source.columns import columns_of, spark_schema
from neve.lake.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


class NeveDataSource(DataSource):  # type: ignore[misc]
    """Topics of a bucket, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "neve"

    def schema(self) -> StructType:
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return spark_schema(headers=headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from neve.lake.source.reader import FilterTakingReader, NeveReader

        options = ReadOptions.parse(self.options)
        kind = FilterTakingReader if options.push_filters else NeveReader
        return kind(options, columns_of(schema))
