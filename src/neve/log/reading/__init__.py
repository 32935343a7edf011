"""The read engine: plan spans of a log, locate their bytes, check them, resolve again.

The modules here serve all readers. `leader` builds on them what a broker reads its partitions with.
"""
