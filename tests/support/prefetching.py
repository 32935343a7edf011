"""Downloads from a slow store for the tests of the prefetch reader, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from neve import runtime
from neve.errors import UnavailableError
from neve.log.downloads import (
    Download,
    whole_object,
)
from neve.log.prefetch import PrefetchReader
from support.slow_store import SlowStore

SIMULATED = Callable[[], Coroutine[Any, Any, None]]


def simulated(test: SIMULATED) -> Callable[[], None]:
    """Run an async test in virtual time, twice over, so that it also holds for another seed."""

    def run() -> None:
        for seed in (1, 2):
            runtime.simulate(test(), seed=seed)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def names(count: int) -> list[str]:
    return [f"object-{index:03d}" for index in range(count)]


def store_of(count: int, size: int = 100, **options: Any) -> SlowStore:
    return SlowStore({key: key.encode().ljust(size, b".") for key in names(count)}, **options)


def downloads_of(store: SlowStore) -> list[Download[bytes]]:
    return [whole_object(key, len(data), bytes) for key, data in sorted(store.objects.items())]


def unavailable(key: str = "object") -> UnavailableError:
    return UnavailableError(key, "503 SlowDown")


async def read_all(reader: PrefetchReader, downloads: Any) -> list[Any]:
    return [item.data async for item in reader.read(downloads)]


def live_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def until_idle() -> None:
    """Let everything that is ready run, and a little time pass."""
    await runtime.sleep(0.001)
