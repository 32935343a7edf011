"""The log of a partition: WAL, segments, indexes, manifests, caches and readers."""
