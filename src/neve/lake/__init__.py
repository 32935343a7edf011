"""The lake: topics in Spark, as Iceberg tables, and in SQL.

The public API is `Pipeline` and `session`; everything else in this package may change. Importing
the package loads neither Spark nor pyiceberg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.lake.spark.session import session

if TYPE_CHECKING:
    from neve.lake.pipeline.runner import Pipeline

__all__ = ["Pipeline", "session"]


def __getattr__(name: str) -> object:
    """Import `Pipeline` on first use: Spark's workers import this package and do not need it."""
    if name == "Pipeline":
        from neve.lake.pipeline.runner import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
