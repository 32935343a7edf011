"""Benchmarks of a broker on one machine: against librdkafka's mock cluster, and with a backlog.

The broker, the mock and the client that loads them run in separate processes. Compared values are
measured alternately, in several rounds, and a figure is the median of the rounds.
"""
