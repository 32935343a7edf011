"""The package by whose name Spark finds the data source `neve`.

Spark imports every package called `pyspark_…` and registers what it names `DefaultSource`, so
`spark.read.format("neve")` works without registration.
"""

from neve.lake.spark.source.data_source import NeveDataSource as DefaultSource

__all__ = ["DefaultSource"]
