"""Execution of SQL queries on Spark: the engine, its views, the plan check and result streams."""
