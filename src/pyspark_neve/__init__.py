"""The package by whose name Spark finds the data source `neve`.

Spark imports every package called `pyspark_…` and registers what it names `DefaultSource`. There is
none yet: `spark.read.format("neve")` is to come.
"""
