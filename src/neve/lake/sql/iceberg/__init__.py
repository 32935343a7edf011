"""Iceberg tables as relations, read without Iceberg's own jar.

`plan` chooses files with pyiceberg on the driver, `filters` converts a query's conditions to
Iceberg's, `types` maps types to Spark's, `read` runs in the workers, `equality` applies equality
deletes, which pyiceberg lacks.
"""
