"""Spark SQL over topics and Iceberg tables: what `neve sql` and the PostgreSQL server run."""
