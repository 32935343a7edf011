"""The write-ahead log: one stream of objects per broker process, for all partitions it leads."""
