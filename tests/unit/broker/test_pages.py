"""Health: alive at once, ready when it serves, and why not otherwise."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from neve.broker import pages as pages_module
from neve.broker.metrics.objects import ObjectCounts
from neve.broker.pages import BrokerPages
from neve.errors import FencedError
from neve.serving.http import Page
from neve.store.memory import MemoryStore


def pages_of(*, is_ready: bool = True, buffered_bytes: int = 0) -> tuple[BrokerPages, Any]:
    writer = SimpleNamespace(buffered_bytes=buffered_bytes, committed_end=3)
    broker = SimpleNamespace(
        ended=asyncio.get_running_loop().create_future(),
        is_ready=is_ready,
        node=SimpleNamespace(writer=writer),
    )
    pages = BrokerPages(ObjectCounts(MemoryStore()))
    pages.broker = broker  # type: ignore[assignment]
    return pages, broker


async def ask(pages: BrokerPages, path: str) -> Page:
    return await pages.by_path()[path]()


async def readiness(pages: BrokerPages) -> tuple[int, str]:
    page = await ask(pages, "/readyz")
    return page.status, page.body.decode()


async def test_it_is_alive_before_it_is_ready() -> None:
    pages = BrokerPages(ObjectCounts(MemoryStore()))
    assert (await ask(pages, "/healthz")).status == 200
    assert await readiness(pages) == (503, "starting\n")


async def test_before_it_serves_only_the_process_is_measured() -> None:
    page = await ask(BrokerPages(ObjectCounts(MemoryStore())), "/metrics")
    assert b"process_resident_memory_bytes" in page.body
    assert b"neve_requests_total" not in page.body
    assert page.content_type.startswith("text/plain; version=0.0.4")


async def test_it_is_ready_when_it_serves_and_not_when_it_stops() -> None:
    pages, broker = pages_of()
    assert await readiness(pages) == (200, "ready\n")
    broker.is_ready = False
    assert (await readiness(pages))[0] == 503
    broker.is_ready, pages.stopping = True, True
    assert await readiness(pages) == (503, "stopping\n")


async def test_a_fenced_broker_says_so_in_one_line() -> None:
    pages, broker = pages_of()
    broker.ended.set_result(FencedError("wal/7/3 holds a seal\nof another process"))
    assert await readiness(pages) == (503, "ended: wal/7/3 holds a seal of another process\n")
    assert (await ask(pages, "/healthz")).status == 200


async def test_a_store_that_takes_no_writes_is_told_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages_module, "STALLED_SECONDS", 0.02)
    pages, broker = pages_of(buffered_bytes=100)
    assert (await readiness(pages))[0] == 200
    await asyncio.sleep(0.03)
    status, reason = await readiness(pages)
    assert status == 503
    assert reason.startswith("the store has taken no write for")
    broker.node.writer.committed_end += 1
    assert (await readiness(pages))[0] == 200
