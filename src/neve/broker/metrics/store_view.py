"""Requests to the store and their outcomes, as counted by the wrappers around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neve.serving.text import histogram, one, several
from neve.store.url import Stack


def store_view(stack: Stack) -> Iterator[str]:
    operations = stack.meter.snapshot()
    yield several(
        "neve_store_requests_total",
        [
            ((operation, outcome), count)
            for operation, seen in operations.items()
            for outcome, count in seen["outcomes"].items()
        ],
    )
    yield histogram(
        "neve_store_request_seconds",
        [
            ((operation,), _every_other(seen["latency"]["buckets"]), seen["latency"]["sum_seconds"])
            for operation, seen in operations.items()
        ],
    )
    for name, field in (
        ("neve_store_sent_bytes_total", "sent_bytes"),
        ("neve_store_received_bytes_total", "received_bytes"),
    ):
        yield several(name, [((operation,), seen[field]) for operation, seen in operations.items()])
    gate = stack.gate
    yield one("neve_store_requests_in_flight", gate.in_flight)
    yield one("neve_store_requests_waiting", gate.waiting)
    yield one("neve_store_requests_max", gate.concurrency_max)
    yield one("neve_store_retries_total", stack.retry.retries)
    yield one("neve_store_retries_refused_total", stack.retry.budget_refusals)
    yield one("neve_store_hedges_total", stack.hedge.hedges)
    yield one("neve_store_hedges_won_total", stack.hedge.hedges_won)


def _every_other(buckets: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return every other bucket. Buckets are cumulative, so the remaining ones stay exact."""
    return [*buckets[:-1:2], buckets[-1]]
