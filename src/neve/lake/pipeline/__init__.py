"""Pipelines from topics to Iceberg tables: configuration, execution and status."""
