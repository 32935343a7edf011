"""Everything that imports pyspark: the source `neve`, tables, SQL and jobs over the bucket.

Importing this package does not load Spark: `session` does when it is called.
"""

from neve.lake.session import session

__all__ = ["session"]
