"""The read engine: plan spans of a log, locate their bytes, check them, resolve again.

The modules here serve all readers. `leader`, which builds on them, serves a broker's partitions.
"""
