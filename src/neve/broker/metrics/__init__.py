"""What a broker counts, and how it is shown.

`Metrics` is what the hot path adds to: plain integers and bucketed histograms. `catalogue` names
every family once, with its help text; docs/operations.md is compared with it by a test. The
`…_view` modules look at counters and components when a scrape comes, and `exposition` turns that
into Prometheus text, in slices, so that a broker of thousands of partitions goes on serving.
"""

from neve.broker.metrics.counters import Latency, Metrics

__all__ = ["Latency", "Metrics"]
