"""The metrics of a broker.

The hot path adds to `Metrics`: plain integers and bucketed histograms. The `…_view` modules read
counters and components during a scrape. `neve.serving` has the names of all families, and turns
views into Prometheus text. It does so in slices, so that a broker with thousands of partitions
keeps serving clients meanwhile.
"""

from neve.broker.metrics.counters import Latency, Metrics

__all__ = ["Latency", "Metrics"]
