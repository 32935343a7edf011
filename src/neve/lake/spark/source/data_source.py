"""The data source that Spark registers under the name `neve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from neve.errors import InvalidError
from neve.lake.scan.options import ReadOptions, includes_headers
from neve.lake.spark.source.columns import columns_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from neve.lake.spark.source.sink import WriteOptions


class NeveDataSource(DataSource):  # type: ignore[misc]
    """Topics of a bucket, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "neve"

    def schema(self) -> StructType:
        return spark_schema(headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from neve.lake.spark.source.reader import FilterTakingReader, NeveReader

        options = ReadOptions.parse(self.options)
        kind = FilterTakingReader if options.push_filters else NeveReader
        return kind(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's
        from neve.lake.spark.source.stream import NeveStreamReader

        return NeveStreamReader(ReadOptions.parse(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from neve.lake.spark.source.sink import NeveWriter

        return NeveWriter(self._write_options(schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from neve.lake.spark.source.sink import NeveStreamWriter

        return NeveStreamWriter(self._write_options(schema, overwrite=overwrite))

    def _write_options(self, schema: StructType, *, overwrite: bool) -> WriteOptions:
        from neve.lake.spark.source.sink import WriteOptions, check_columns

        if overwrite:
            raise InvalidError("topics can only be appended to: use the write mode append")
        options = WriteOptions.parse(self.options)
        check_columns(schema, options)
        return options
