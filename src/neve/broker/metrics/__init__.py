"""What a broker counts, and how it is shown.

`Metrics` is what the hot path adds to: plain integers and bucketed histograms. The `…_view` modules
look at counters and components when a scrape comes. `neve.serving` has the names of all families,
and turns views into Prometheus text, in slices, so that a broker of thousands of partitions goes on
serving.
"""

from neve.broker.metrics.counters import Latency, Metrics

__all__ = ["Latency", "Metrics"]
