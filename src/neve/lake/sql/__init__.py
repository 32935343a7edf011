"""SQL over topics and Iceberg tables, without Spark: statements, names, required rows, plans."""
