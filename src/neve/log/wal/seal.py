"""Seals a stream: a successor ends it while its owner may still be writing.

The sealer creates seals at the first missing number and over the whole window after it at once. A
live pipelined writer may have filled all of these numbers by the time they arrive, so every further
round reaches twice as far ahead. Sooner or later a seal arrives before the writer, which cannot
pass it. The end of the stream is the first number, in order from the greatest checkpoint, that is a
seal while every number before it has data. A seal above a missing number decides nothing.
"""

from __future__ import annotations

import asyncio

from neve import runtime
from neve.errors import (
    ConflictError,
    ExistsError,
    NeveError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from neve.log.downloads import fetch_prefix_checked
from neve.log.keys import wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.object import HEADER_BYTES, Kind
from neve.log.wal.stores import check_place
from neve.store.port import Store

PAUSE_MS = 20
PAUSE_MS_MAX = 2_000
# The maximum number of seals in one round: a few seconds of a writer's work at full speed.
REACH_NUMBERS_MAX = 2048
# Headers read concurrently: more than a writer can write in that time, so that the sealer catches
# up.
READ_NUMBERS_MIN = 64


class Sealer:
    """Ends one stream. Any number of sealers may run at once: all find the same end."""

    def __init__(self, store: Store, incarnation: int, *, window: int) -> None:
        self._store = store
        self._incarnation = incarnation
        # The window, and as many numbers as a writer may add while the seals are in flight.
        self._reach = 2 * window
        self._read_numbers = max(READ_NUMBERS_MIN, 2 * window)
        self._author = runtime.token(wal_object.AUTHOR_BYTES)
        self._tasks = runtime.Tasks()
        self.keys = wal_stream(incarnation)

    async def seal(self) -> int:
        """Seal the stream, and return the number at which it ends. All below it is committed."""
        try:
            while True:
                end = await self._walk(await greatest_checkpoint(self._store, self.keys) or 0)
                # Check afterwards: a seal below the greatest checkpoint decides nothing.
                if await greatest_checkpoint(self._store, self.keys, above=end) is None:
                    return end
        finally:
            await self._tasks.close()

    async def _walk(self, number: int) -> int:
        """Walk in order to the first seal, creating seals where a number is missing."""
        backoff = runtime.Backoff(PAUSE_MS, PAUSE_MS_MAX)
        while True:
            number, found = await self._first_without_data(number)
            if found is Kind.SEAL:
                return number
            above = await greatest_checkpoint(self._store, self.keys, above=number)
            if above is not None:
                number = above  # trimmed meanwhile: numbers below a checkpoint are decided
                continue
            if isinstance(found, NeveError):
                raise found
            await check_place(self._store, self._incarnation)  # else everything would be missing
            self._seal_ahead(number + 1)
            await self._create_seal(number)
            if await self._kind(number) is None:
                await backoff.pause()

    async def _first_without_data(self, number: int) -> tuple[int, Kind | NeveError | None]:
        """Return the first number from here on that has no data, and what is there instead.

        A listing decides only how many numbers to read concurrently. Every number is read.
        """
        is_first_round = True
        while True:
            frontier = await self._first_unlisted(number)
            if not is_first_round:
                frontier = await self._stop(frontier)  # it grew meanwhile: its writer is alive
            is_first_round = False
            while number <= frontier:
                last = min(frontier, number + self._read_numbers - 1)
                kinds = await runtime.gather(*map(self._seen, range(number, last + 1)))
                for kind in kinds:
                    if kind is not Kind.DATA:
                        return number, kind
                    number += 1

    async def _stop(self, frontier: int) -> int:
        """Create a seal ahead of a live writer, which cannot pass it. Returns the seal's number."""
        while True:
            sent, refused = self._seal_ahead(frontier), False
            while sent:
                await asyncio.wait(sent.values(), return_when=asyncio.FIRST_COMPLETED)
                for number, seal in sent.items():
                    if seal.done() and seal.result():
                        return number
                    refused |= seal.done() and seal.result() is None
                sent = {number: seal for number, seal in sent.items() if not seal.done()}
            frontier = await self._first_unlisted(frontier)
            if refused and await self._create_seal(frontier):  # raises why seals are refused
                return frontier

    async def _first_unlisted(self, number: int) -> int:
        after = self.keys.number(number - 1) if number > 0 else ""
        rows = await self._store.list(self.keys.prefix, after)
        listed = {self.keys.number_of(row.key) for row in rows}
        while number in listed:
            number += 1
        return number

    async def _seen(self, number: int) -> Kind | NeveError | None:
        """Return the kind of a number, or the error of reading it, which may not matter."""
        try:
            return await self._kind(number)
        except NeveError as error:
            return error

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

    def _seal_ahead(self, number: int) -> dict[int, asyncio.Task[bool | None]]:
        """Start to create seals from a number on, without waiting; twice as many the next time."""
        beyond = range(number, number + self._reach)
        self._reach = min(2 * self._reach, REACH_NUMBERS_MAX)
        return {ahead: self._tasks.start(self._create_seal_or_not(ahead)) for ahead in beyond}

    async def _create_seal_or_not(self, number: int) -> bool | None:
        """Do the same, but return None if the store rejects it with another error."""
        try:
            return await self._create_seal(number)
        except StoreError:
            return None  # retried, and then raised, when it is the first missing number

    async def _create_seal(self, number: int) -> bool:
        """Return True if our seal was created; otherwise the caller must read the number."""
        data = wal_object.encode_seal(
            incarnation=self._incarnation,
            number=number,
            author=self._author,
            created_ms=runtime.now_ms(),
        )
        try:
            await self._store.create(self.keys.number(number), data)
        except (ExistsError, ConflictError, UnavailableError):
            return False
        return True
