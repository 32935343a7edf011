"""Maintaining partitions beside live brokers: merge, expire, verify, index, import."""
