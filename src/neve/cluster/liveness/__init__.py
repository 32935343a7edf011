"""Failure detection: which brokers watch a broker, and when they may declare it dead.

Everything but `heartbeat` is pure: time is passed in, and pings, looks and questions are steps that
the caller takes. docs/contributors/cluster.md has the rules.
"""
