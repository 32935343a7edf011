"""Compares Neve on Spark with Spark's Kafka source, Spark's Parquet and pyarrow."""
