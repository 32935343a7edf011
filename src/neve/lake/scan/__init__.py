"""Planning and reading of topic scans without Spark: options, offset ranges and tasks."""
