"""Iceberg tables as relations, read without Iceberg's own jar.

`plan` chooses files with pyiceberg on the driver, `filters` turns a query's conditions into
Iceberg's, `types` says what Spark sees, `read` runs in the workers, `equality` is what pyiceberg
lacks: rows deleted by value.
"""
