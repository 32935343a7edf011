"""The pages that every Neve process serves on its HTTP port: liveness, readiness and metrics.

A view is a generator of short pieces of the metrics' text. `scrape` yields to the event loop after
`SLICE_SECONDS` of work. The samples of one scrape are therefore not taken at one instant: a counter
of a later family may include a request that an earlier one does not.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TypeAlias

from neve import runtime
from neve.serving.http import Page, Pages
from neve.serving.text import CONTENT_TYPE, one, several

SLICE_SECONDS = 0.001

View: TypeAlias = Callable[[], Iterator[str]]


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


async def scrape(views: Sequence[View]) -> bytes:
    """Return the text of all views, without blocking the event loop for long."""
    parts: list[str] = []
    started = runtime.monotonic()
    for view in views:
        for piece in view():
            parts.append(piece)
            if runtime.monotonic() - started >= SLICE_SECONDS:
                await runtime.sleep(0)
                started = runtime.monotonic()
    return "".join(parts).encode()


def process_view(version: str) -> Iterator[str]:
    """Yield the metrics of this process. `version` is Neve's, which this layer cannot import."""
    yield one("process_resident_memory_bytes", runtime.resident_bytes())
    spent = os.times()
    yield one("process_cpu_seconds_total", spent.user + spent.system)
    about = (version, platform.python_version(), platform.system())
    yield several("neve_build_info", [(about, 1)])
