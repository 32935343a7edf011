"""Maintenance of partitions beside live brokers: merge, expire, verify, index, import."""
