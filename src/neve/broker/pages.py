"""What the HTTP port of a broker answers: is it alive, is it ready, and what has it counted.

Made before the broker is, so that a process which starts slowly says so.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from neve.broker.http import Page, Pages
from neve.broker.metrics.client_view import client_view
from neve.broker.metrics.exposition import View, scrape
from neve.broker.metrics.kafka_view import kafka_view
from neve.broker.metrics.log_view import CommitLag, log_view
from neve.broker.metrics.process_view import process_view
from neve.broker.metrics.store_view import store_view
from neve.broker.metrics.text import CONTENT_TYPE

if TYPE_CHECKING:
    from neve.broker.broker import Broker

STALLED_SECONDS = 10.0
"""Longer than any one upload should take: then the store does not take our writes."""


class BrokerPages:
    """The pages of one process. `broker` is set once there is one."""

    def __init__(self) -> None:
        self.broker: Broker | None = None
        self.stopping = False
        self._lag = CommitLag()

    def by_path(self) -> Pages:
        return {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}

    def unready(self) -> str | None:
        """Why clients are not served as they should be; None where they are."""
        if self.stopping:
            return "stopping"
        broker = self.broker
        if broker is None:
            return "starting"
        if broker.ended.done():
            return f"ended: {broker.ended.result()}"
        if not broker.is_ready:
            return "not serving"
        seconds = self._lag.seconds(broker.node.writer)
        if seconds >= STALLED_SECONDS:
            return f"the store has taken no write for {seconds:.0f} s"
        return None

    async def _healthz(self) -> Page:
        return Page(b"ok\n")

    async def _readyz(self) -> Page:
        reason = self.unready()
        if reason is None:
            return Page(b"ready\n")
        return Page(f"{' '.join(reason.split())}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    async def _metrics(self) -> Page:
        return Page(await scrape(self._views()), content_type=CONTENT_TYPE)

    def _views(self) -> list[View]:
        broker = self.broker
        if broker is None:
            return [process_view]
        return [
            process_view,
            partial(client_view, broker.metrics),
            partial(store_view, broker.stack),
            partial(log_view, broker.node, self._lag),
            partial(kafka_view, broker.node),
        ]
