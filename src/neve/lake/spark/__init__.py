"""Everything that imports pyspark: sessions, the data source `neve`, jobs and SQL execution."""
