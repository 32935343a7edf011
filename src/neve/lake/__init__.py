"""Everything that imports pyspark: the source, tables and jobs over the bucket come here."""
