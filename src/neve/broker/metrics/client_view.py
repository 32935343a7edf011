"""Requests, connections, bytes and records of clients, and the latency of acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator

from neve.broker.error_codes import NO_ERROR, error_name
from neve.broker.metrics.counters import Metrics
from neve.protocol.messages import APIS
from neve.serving.text import histogram, one, several


def client_view(metrics: Metrics) -> Iterator[str]:
    yield several("neve_requests_total", _requests(metrics))
    yield histogram(
        "neve_request_seconds",
        [
            ((_api_name(key),), api.latency.buckets(), api.latency.sum_seconds)
            for key, api in sorted(metrics.apis.items())
        ],
    )
    yield one("neve_received_bytes_total", metrics.bytes_in)
    yield one("neve_sent_bytes_total", metrics.bytes_out)
    yield one("neve_connections", metrics.connections_open)
    yield one("neve_connections_accepted_total", metrics.connections_accepted)
    yield one("neve_connections_refused_total", metrics.connections_refused)
    closed = sorted(metrics.closed_by_reason().items())
    yield several("neve_connections_closed_total", [((why,), count) for why, count in closed])
    yield one("neve_produced_records_total", metrics.produce_records)
    yield one("neve_produced_batches_total", metrics.produce_batches)
    yield one("neve_produced_bytes_total", metrics.produce_bytes)
    yield one("neve_fetched_bytes_total", metrics.fetch_bytes)
    yield histogram("neve_ack_seconds", [((), metrics.ack.buckets(), metrics.ack.sum_seconds)])


def _requests(metrics: Metrics) -> Iterator[tuple[tuple[str, str], int]]:
    for key, api in sorted(metrics.apis.items()):
        yield (_api_name(key), error_name(NO_ERROR)), api.without_error
        for code, count in sorted(api.errors.items()):
            yield (_api_name(key), error_name(code)), count


def _api_name(key: int) -> str:
    api = APIS.get(key)
    return api.name if api is not None else str(key)
