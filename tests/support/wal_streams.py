"""A WAL stream on a scripted store, with its writers, seals and contents."""

from __future__ import annotations

import asyncio
from typing import Any

from neve import runtime
from neve.errors import NeveError
from neve.log.keys import wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal.reader import WalReader
from neve.log.wal.writer import Commit, WalWriter
from support.scripted_store import ScriptedStore, hold
from support.wal_batches import SMALL, texts

INCARNATION = 5
KEYS = wal_stream(INCARNATION)


class WalStream:
    """The stream of one incarnation, with small settings."""

    def __init__(self, store: ScriptedStore) -> None:
        self._store = store

    def writer(self, **options: Any) -> WalWriter:
        return WalWriter(self._store, INCARNATION, SMALL, **options)

    def reader(self) -> WalReader:
        return WalReader(self._store, INCARNATION)

    def hold_create(self, number: int) -> asyncio.Event:
        """Make the create of this number wait. Set the returned event to release it."""
        release = asyncio.Event()
        self._store.when("create", KEYS.number(number), hold(release))
        return release

    async def seal(self, number: int) -> None:
        """Put a successor's seal under this number."""
        seal = wal_object.encode_seal(
            incarnation=INCARNATION, number=number, author=b"successor.......", created_ms=0
        )
        await self._store.put(KEYS.number(number), seal)

    async def written(self) -> list[int]:
        """Return the offsets that the bucket holds, in the order of the stream."""
        reader = self.reader()
        return await texts(reader, await reader.tail())


async def turns(count: int = 20) -> None:
    """Run every task until it waits for time to pass."""
    for _ in range(count):
        await runtime.sleep(0)


async def outcome(commit: Commit) -> type[NeveError] | None:
    """Return the error of a completed append; None if it is committed."""
    assert commit.done
    try:
        await commit.wait()
    except NeveError as error:
        return type(error)
    return None


def no_task_is_left() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}
