"""Benchmarks of several brokers on one bucket. Use the modules.

`measure.run` measures how long clients notice that brokers die, hand partitions over or are
replaced, and what brokers send each other.
"""
