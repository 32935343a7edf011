"""Spark's own ways to the same records, beside Neve's: its Kafka source, Parquet, and pyarrow."""
