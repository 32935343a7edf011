"""Maintenance as a Spark job: partitions dealt out to tasks, each of which opens the bucket."""

from neve.lake.maintain.spread import deal, run_on_spark

__all__ = ["deal", "run_on_spark"]
