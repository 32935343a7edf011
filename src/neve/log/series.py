"""The only primitive of coordination: a numbered series of objects, each created once.

Numbers are consecutive and never overwritten. A checkpoint at n contains the state after all
numbers below n; only then may those be deleted. So a missing number may have been trimmed, and an
existing one may have been written again by a late request. Hence the rule that everything here
follows: **a number that was read, missed or won is valid only if the greatest checkpoint, checked
afterwards, is not above it.** Otherwise the reader starts again from that checkpoint.

Every object carries its author's random id, so reading a number shows which writer won it. A loser
derives a new proposal from the winner's state, and never sends the same record again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from neve import runtime
from neve.errors import (
    DamagedError,
    ExistsError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.create import decide
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import SeriesKeys
from neve.store.deletion import delete_all
from neve.store.port import Store

State = TypeVar("State")
Record = TypeVar("Record")


# Numbers that a lagging reader reads concurrently.
READ_AHEAD_MAX = 16


class SeriesRules(Protocol[State, Record]):
    """The types and the fold function of one kind of series: pure, no I/O."""

    record_kind: Kind
    checkpoint_kind: Kind
    record_schema: type[Record]
    state_schema: type[State]

    def empty(self) -> State:
        """Return the state before the first number."""

    def fold(self, state: State, number: int, record: Record) -> State:
        """Return the state after one more number, without changing `state`.

        Raises DamagedError if the record cannot follow this state.
        """


@dataclass(frozen=True)
class View(Generic[State]):
    """The valid state after all numbers below `position`."""

    position: int
    state: State


class Entry(NamedTuple, Generic[Record]):
    """One number as it was read."""

    number: int
    author: bytes
    record: Record


@dataclass(frozen=True)
class Progress(Generic[State, Record]):
    """A newer view, and the numbers that were read to get there.

    `entries` is None if the reader had to start again from a checkpoint, so that it did not see all
    numbers in between.
    """

    view: View[State]
    entries: tuple[Entry[Record], ...] | None


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """The result of a proposal: the view after it, and the number that it won.

    `number` is None if the change was not needed, or had already been made.
    """

    view: View[State]
    number: int | None


class PassedError(UnavailableError):
    """The greatest checkpoint passed the base of a proposal: derive it again from a new base."""


async def greatest_checkpoint(store: Store, keys: SeriesKeys, above: int = -1) -> int | None:
    """Return the number of the greatest checkpoint above `above`; None if there is none."""
    after = keys.checkpoint(above) if above >= 0 else ""
    found = [keys.checkpoint_of(row.key) for row in await store.list(keys.checkpoints, after)]
    return max((number for number in found if number is not None), default=None)


class Series(Generic[State, Record]):
    """One series in a bucket. It keeps no state: callers keep the view that they have reached."""

    def __init__(self, store: Store, keys: SeriesKeys, rules: SeriesRules[State, Record]) -> None:
        self.store = store
        self.keys = keys
        self.rules = rules

    async def load(self) -> View[State]:
        """Read the series from its greatest checkpoint on, and return the newest view."""
        greatest = await greatest_checkpoint(self.store, self.keys)
        start = await self._load_checkpoint(greatest) if greatest is not None else None
        return (await self.advance(start or View(0, self.rules.empty()))).view

    async def advance(self, view: View[State]) -> Progress[State, Record]:
        """Read from a view on until a number is missing, then check the greatest checkpoint.

        Raises DamagedError or UnsupportedError if a number above that checkpoint cannot be read.
        """
        progress, unreadable = await self.advance_readable(view)
        if unreadable is not None:
            raise unreadable
        return progress

    async def advance_readable(
        self, view: View[State]
    ) -> tuple[Progress[State, Record], DamagedError | UnsupportedError | None]:
        """Read as `advance` does. Returns the error of the number at which it had to stop."""
        whole = True
        while True:
            entries, unreadable = await self._read_from(view)
            greatest = await greatest_checkpoint(self.store, self.keys, above=view.position)
            if greatest is None:
                folded = self._folded(view, entries)
                return Progress(folded, tuple(entries) if whole else None), unreadable
            loaded = await self._load_checkpoint(greatest)
            if loaded is not None:
                view, whole = loaded, False

    async def propose(
        self, view: View[State], derive: Callable[[View[State]], Record | None]
    ) -> Outcome[State]:
        """Write the next number. `derive` returns its record, or None if no change is needed.

        `derive` is called again whenever another writer won the number, and if a checkpoint hid the
        winner. So it must detect from the state whether its change has already been made.
        """
        return await self._propose(view, lambda reached, _: derive(reached), from_base=False)

    async def propose_from_base(
        self,
        base: View[State],
        derive: Callable[[View[State], tuple[Entry[Record], ...]], Record | None],
    ) -> Outcome[State]:
        """Propose a change that depends on every number since `base`.

        `derive` gets all of them. Raises PassedError if a checkpoint hid some: an earlier proposal
        of this call may or may not have taken effect.
        """
        return await self._propose(base, derive, from_base=True)

    async def _propose(
        self,
        base: View[State],
        derive: Callable[[View[State], tuple[Entry[Record], ...]], Record | None],
        *,
        from_base: bool,
    ) -> Outcome[State]:
        view = base
        since_base: tuple[Entry[Record], ...] = ()
        sent: bytes | None = None
        while True:
            progress = await self.advance(view)
            if progress.entries is None and from_base:
                raise PassedError(
                    self.keys.prefix, f"a checkpoint passed number {base.position}: start again"
                )
            entries = progress.entries or ()
            if sent is not None and entries and entries[0].author == sent:
                return Outcome(progress.view, entries[0].number)
            view, since_base = progress.view, since_base + entries
            record = derive(view, since_base)
            if record is None:
                return Outcome(view, None)
            self._check_that_it_folds(view, record)
            sent = await self._send(view.position, record)

    def _check_that_it_folds(self, view: View[State], record: Record) -> None:
        """Raise InvalidError for a record that cannot be folded: it would stop every reader."""
        try:
            self.rules.fold(view.state, view.position, record)
        except DamagedError as error:
            raise InvalidError(
                f"{self.keys.number(view.position)} is not written: {error.reason}"
            ) from error

    async def _send(self, number: int, record: Record) -> bytes:
        """Create a number, and retry until it exists or was trimmed. Returns the author id used."""
        key = self.keys.number(number)
        author = runtime.token(AUTHOR_BYTES)
        data = seal_envelope(self.rules.record_kind, self.keys.prefix, number, author, record)
        await decide(self.store, key, data, lambda: self._trimmed(number))
        return author

    async def _trimmed(self, number: int) -> bool:
        return await greatest_checkpoint(self.store, self.keys, above=number) is not None

    async def checkpoint(self, view: View[State]) -> None:
        """Write a checkpoint of the view."""
        if view.position == 0:
            return
        author = runtime.token(AUTHOR_BYTES)
        kind, prefix = self.rules.checkpoint_kind, self.keys.prefix
        data = seal_envelope(kind, prefix, view.position, author, view.state)
        try:
            await self.store.create(self.keys.checkpoint(view.position), data)
        except ExistsError:
            return  # another writer's is equal: it is a function of the numbers below

    async def trim(self) -> int:
        """Delete numbers and checkpoints below the greatest checkpoint. Returns their number."""
        greatest = await greatest_checkpoint(self.store, self.keys)
        if greatest is None:
            return 0
        doomed = []
        for row in await self.store.list(self.keys.prefix):
            number = self.keys.number_of(row.key)
            number = self.keys.checkpoint_of(row.key) if number is None else number
            if number is not None and number < greatest:
                doomed.append(row.key)
        await delete_all(self.store, doomed)
        return len(doomed)

    async def read(self, number: int) -> Entry[Record] | None:
        """Read one number; None if it is missing. Valid only after a check of the checkpoint."""
        key = self.keys.number(number)

        def decode(data: memoryview) -> Entry[Record]:
            envelope = open_envelope(data, self.rules.record_kind, self.keys.prefix, number, key)
            record: Record = decode_payload(envelope, self.rules.record_schema, key)
            return Entry(number, envelope.author, record)

        try:
            return await fetch_checked(self.store, key, ENVELOPE_BYTES_MAX, decode)
        except NotFoundError:
            return None

    async def _read_from(
        self, view: View[State]
    ) -> tuple[list[Entry[Record]], DamagedError | UnsupportedError | None]:
        """Read the numbers up to the first missing or unreadable one.

        Returns the error of an unreadable one rather than raise it, because it does not matter
        below the greatest checkpoint.
        """
        entries: list[Entry[Record]] = []
        width = 1
        while True:
            start = view.position + len(entries)
            for outcome in await runtime.gather(
                *(self._read_or_error(number) for number in range(start, start + width))
            ):
                if outcome is None or not isinstance(outcome, Entry):
                    return entries, outcome
                entries.append(outcome)
            # Start with one: a reader near the end then requests few numbers that do not exist.
            width = min(2 * width, READ_AHEAD_MAX)

    async def _read_or_error(
        self, number: int
    ) -> Entry[Record] | DamagedError | UnsupportedError | None:
        try:
            return await self.read(number)
        except (DamagedError, UnsupportedError) as error:
            return error

    def _folded(self, view: View[State], entries: list[Entry[Record]]) -> View[State]:
        state = view.state
        for entry in entries:
            try:
                state = self.rules.fold(state, entry.number, entry.record)
            except DamagedError as error:
                raise DamagedError(self.keys.number(entry.number), error.reason) from error
        return View(view.position + len(entries), state)

    async def _load_checkpoint(self, number: int) -> View[State] | None:
        """Read a checkpoint's view; None if a greater checkpoint has replaced it meanwhile."""
        key = self.keys.checkpoint(number)

        def decode(data: memoryview) -> State:
            envelope = open_envelope(
                data, self.rules.checkpoint_kind, self.keys.prefix, number, key
            )
            state: State = decode_payload(envelope, self.rules.state_schema, key)
            return state

        try:
            return View(number, await fetch_checked(self.store, key, ENVELOPE_BYTES_MAX, decode))
        except NotFoundError:
            if await greatest_checkpoint(self.store, self.keys, above=number) is None:
                raise DamagedError(key, "the greatest checkpoint is listed but not there") from None
            return None
