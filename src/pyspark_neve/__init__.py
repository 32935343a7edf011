"""Lets Spark find the data source `neve` by name."""
