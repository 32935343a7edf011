"""Counters for the hot path.

They neither lock nor allocate per event, and know nothing of Prometheus. All of them are used on
the event loop's thread.
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
        """Return pairs of an upper bound and the count up to it. The last bound is infinite."""
        return list(zip((*BOUNDS_SECONDS, float("inf")), accumulate(self._counts), strict=True))


class ApiCounters:
    """The requests of one API."""

    __slots__ = ("errors", "latency")

    def __init__(self) -> None:
        self.latency = Latency()
        self.errors: dict[int, int] = {}
        """Responses with an error, by Kafka's error code."""

    @property
    def without_error(self) -> int:
        return self.latency.count - sum(self.errors.values())


class Metrics:
    """The counters of one broker, read during a scrape.

    Callers add to the attributes (`metrics.bytes_in += n`): a call would cost more than the sum.
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

    def request_completed(
        self, api_key: int, seconds: float, error: int = 0, times: int = 1
    ) -> None:
        """Count requests that got a response with this error code, or are done with acks=0."""
        api = self.apis.get(api_key)
        if api is None:
            api = self.apis[api_key] = ApiCounters()
        api.latency.add(seconds, times)
        if error:
            api.errors[error] = api.errors.get(error, 0) + times

    def closed(self, reason: str) -> None:
        """Count a closed connection. Reasons are fixed words, such as `idle` or `by-client`."""
        self._closed[reason] = self._closed.get(reason, 0) + 1

    def closed_by_reason(self) -> dict[str, int]:
        return dict(self._closed)
