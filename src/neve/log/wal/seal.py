"""Sealing a stream: how a successor ends it while its owner may still be writing.

Seals go to the first missing number and over the whole window beyond it at once, so that a live
pipelined writer cannot outrun the sealer. The end is the first number, walking in order from the
greatest checkpoint, that holds a seal while every number before it holds data. A seal seen above a
missing number decides nothing.
"""

from __future__ import annotations

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.log.fetch import fetch_prefix_checked
from neve.log.keys import wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.object import HEADER_BYTES, Kind
from neve.store.port import Store

PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 2.0


class Sealer:
    """Ends one stream. Any number of sealers may be at it at once: all find the same end."""

    def __init__(self, store: Store, incarnation: int, *, window: int) -> None:
        self._store = store
        self._incarnation = incarnation
        self._window = window
        self._author = runtime.token(wal_object.AUTHOR_BYTES)
        self._tasks = runtime.Tasks()
        self._sent: set[int] = set()
        self.keys = wal_stream(incarnation)

    async def seal(self) -> int:
        """Seal the stream; the number at which it ends. What was read below it is committed."""
        try:
            while True:
                end = await self._walk(await greatest_checkpoint(self._store, self.keys) or 0)
                # The look afterwards: a seal below the greatest checkpoint decides nothing.
                if await greatest_checkpoint(self._store, self.keys, above=end) is None:
                    return end
        finally:
            await self._tasks.close()

    async def _walk(self, number: int) -> int:
        """Walk in order to the first seal, creating seals where a number is missing."""
        pause = PAUSE_SECONDS
        while True:
            kind = await self._kind(number)
            if kind is Kind.SEAL:
                return number
            if kind is Kind.DATA:
                number += 1
                pause = PAUSE_SECONDS
                continue
            above = await greatest_checkpoint(self._store, self.keys, above=number)
            if above is not None:
                number = above  # trimmed meanwhile: what is below the checkpoint is settled
                continue
            await self._seal_window(number)
            if await self._kind(number) is None:
                await runtime.sleep(pause * (0.75 + runtime.chance().random() / 2))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _kind(self, number: int) -> Kind | None:
        key = self.keys.number(number)
        try:
            header = await fetch_prefix_checked(
                self._store,
                key,
                HEADER_BYTES,
                lambda data: wal_object.decode_header(
                    data, key, incarnation=self._incarnation, number=number
                ),
            )
        except NotFoundError:
            return None
        return header.kind

    async def _seal_window(self, number: int) -> None:
        """Send seals over the window; wait for the first alone, the others land when they do."""
        for beyond in range(number + 1, number + self._window):
            if beyond not in self._sent:
                self._sent.add(beyond)
                self._tasks.start(self._create_seal(beyond))
        await self._create_seal(number)

    async def _create_seal(self, number: int) -> None:
        data = wal_object.encode_seal(
            incarnation=self._incarnation,
            number=number,
            author=self._author,
            created_ms=runtime.now_ms(),
        )
        try:
            await self._store.create(self.keys.number(number), data)
        except (ExistsError, ConflictError, UnavailableError):
            return  # taken or undecided: reading the number tells
