"""Brokers, topics and partition leadership: the cluster log, and one process's part in it."""
