"""The pages that every Neve process serves on its HTTP port: liveness, readiness and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from http import HTTPStatus

from neve.serving.exposition import View, scrape
from neve.serving.http import Page, Pages
from neve.serving.text import CONTENT_TYPE


class ServicePages(ABC):
    """`/healthz`, `/readyz` and `/metrics` of one process."""

    def by_path(self) -> Pages:
        return {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}

    @abstractmethod
    def unready(self) -> str | None:
        """Return why the process is not ready; None if it is."""

    @abstractmethod
    def views(self) -> list[View]:
        """Return the views that make up the metrics."""

    async def _healthz(self) -> Page:
        return Page(b"ok\n")

    async def _readyz(self) -> Page:
        reason = self.unready()
        if reason is None:
            return Page(b"ready\n")
        return Page(f"{' '.join(reason.split())}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    async def _metrics(self) -> Page:
        return Page(await scrape(self.views()), content_type=CONTENT_TYPE)
