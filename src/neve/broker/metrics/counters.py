"""Counters of the hot path: an addition, or a bisection and two.

Nothing here locks, allocates per event or knows Prometheus. Everything runs on the loop's thread.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

# From 100 microseconds, well below a round trip to any store, to 50 seconds, above any time-out.
BOUNDS_SECONDS = tuple(
    round(step * 10.0**power, 6) for power in range(-4, 2) for step in (1, 2.5, 5)
)


class Latency:
    """Durations in fixed buckets."""

    __slots__ = ("_counts", "sum_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += times
        self.sum_seconds += seconds * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds with how many lie at or below them; the last bound is infinite."""
        return list(zip((*BOUNDS_SECONDS, float("inf")), accumulate(self._counts), strict=True))


class ApiCounters:
    """The requests of one API."""

    __slots__ = ("errors", "latency")

    def __init__(self) -> None:
        self.latency = Latency()
        self.errors: dict[int, int] = {}
        """Answers by Kafka's error code; the rest had none."""

    @property
    def without_error(self) -> int:
        return self.latency.count - sum(self.errors.values())


class Metrics:
    """Everything one broker counts itself. Owned by the broker; read when a scrape comes.

    Attributes are added to in place (`metrics.bytes_in += n`): a call would cost more than the sum.
    """

    __slots__ = (
        "_closed",
        "ack",
        "apis",
        "bytes_in",
        "bytes_out",
        "connections_accepted",
        "connections_open",
        "connections_refused",
        "fetch_bytes",
        "produce_batches",
        "produce_bytes",
        "produce_records",
    )

    def __init__(self) -> None:
        self.apis: dict[int, ApiCounters] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_open = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self._closed: dict[str, int] = {}
        self.produce_records = 0
        self.produce_bytes = 0
        self.produce_batches = 0
        self.fetch_bytes = 0
        self.ack = Latency()
        """From a batch's append to its commit."""

    def answered(self, api_key: int, seconds: float, error: int = 0, times: int = 1) -> None:
        """Requests were answered, or done where no answer is wanted, with this error code."""
        api = self.apis.get(api_key)
        if api is None:
            api = self.apis[api_key] = ApiCounters()
        api.latency.add(seconds, times)
        if error:
            api.errors[error] = api.errors.get(error, 0) + times

    def closed(self, reason: str) -> None:
        """A connection was closed. Reasons are a few fixed words, such as `idle` or `by-client`."""
        self._closed[reason] = self._closed.get(reason, 0) + 1

    def closed_by_reason(self) -> dict[str, int]:
        return dict(self._closed)
