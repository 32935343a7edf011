"""The one primitive of coordination: a numbered series of objects, each created once.

Numbers are consecutive and never overwritten. A checkpoint at n sums up all numbers below n; only
then may those be deleted, so a number that is missing may have been trimmed, and one that is there
may have been put back by a late request. Hence the rule that everything here keeps: **what was
read, missed or won is valid only if the greatest checkpoint, checked afterwards, is not above
it.** Otherwise the reader starts again from that checkpoint.

Reading a number decides which writer won it: every object carries its author's random id. A loser
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
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.fetch import fetch_checked
from neve.log.keys import SeriesKeys
from neve.store.deletion import delete_all
from neve.store.port import Store

State = TypeVar("State")
Record = TypeVar("Record")


# Numbers that a lagging reader fetches at once.
READ_AHEAD_MAX = 16


class SeriesRules(Protocol[State, Record]):
    """What a kind of series is about: pure, no I/O."""

    record_kind: Kind
    checkpoint_kind: Kind
    record_schema: type[Record]
    state_schema: type[State]

    def empty(self) -> State:
        """What no numbers at all amount to."""

    def fold(self, state: State, number: int, record: Record) -> State:
        """The state after one more number. The state given is not changed."""


@dataclass(frozen=True)
class View(Generic[State]):
    """What has been believed: the state that all numbers below `position` amount to."""

    position: int
    state: State


class Entry(NamedTuple, Generic[Record]):
    """One number as it was read."""

    number: int
    author: bytes
    record: Record


@dataclass(frozen=True)
class Progress(Generic[State, Record]):
    """How a view moved on: the new view, and what was read on the way.

    `entries` is None where the reader had to start again from a checkpoint, so that some numbers
    between were never seen.
    """

    view: View[State]
    entries: tuple[Entry[Record], ...] | None


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """How a proposal ended: the view after it, and the number it won.

    No number where the change turned out not to be needed, or was found to be there already.
    """

    view: View[State]
    number: int | None


class PassedError(UnavailableError):
    """The greatest checkpoint passed the base of a proposal: derive it again from scratch."""


async def greatest_checkpoint(store: Store, keys: SeriesKeys, above: int = -1) -> int | None:
    """The number of the greatest checkpoint above a given one; None if there is none."""
    after = keys.checkpoint(above) if above >= 0 else ""
    found = [keys.checkpoint_of(row.key) for row in await store.list(keys.checkpoints, after)]
    return max((number for number in found if number is not None), default=None)


class Series(Generic[State, Record]):
    """One series in a bucket. It remembers nothing: callers keep the view they have reached."""

    def __init__(self, store: Store, keys: SeriesKeys, rules: SeriesRules[State, Record]) -> None:
        self.store = store
        self.keys = keys
        self.rules = rules

    async def load(self) -> View[State]:
        """The newest view, from the greatest checkpoint on."""
        greatest = await greatest_checkpoint(self.store, self.keys)
        start = await self._load_checkpoint(greatest) if greatest is not None else None
        return (await self.advance(start or View(0, self.rules.empty()))).view

    async def advance(self, view: View[State]) -> Progress[State, Record]:
        """Read on from a view until a number is missing, then check the greatest checkpoint."""
        whole = True
        while True:
            entries, damage = await self._read_from(view)
            greatest = await greatest_checkpoint(self.store, self.keys, above=view.position)
            if greatest is None:
                if damage is not None:
                    raise damage
                return Progress(self._folded(view, entries), tuple(entries) if whole else None)
            loaded = await self._load_checkpoint(greatest)
            if loaded is not None:
                view, whole = loaded, False

    async def propose(
        self, view: View[State], derive: Callable[[View[State]], Record | None]
    ) -> Outcome[State]:
        """Bring a change about. `derive` makes the record, or None where none is needed.

        It is called again after every loss, and if a checkpoint hid the winner: it must see from
        the state itself whether its change is already there.
        """
        return await self._propose(view, lambda reached, _: derive(reached), from_base=False)

    async def propose_from_base(
        self,
        base: View[State],
        derive: Callable[[View[State], tuple[Entry[Record], ...]], Record | None],
    ) -> Outcome[State]:
        """Propose a change that depends on every number since `base`.

        `derive` gets all of them. Raises PassedError if a checkpoint hid some: what was proposed
        until then may or may not have taken effect.
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
        """Once written, a record that cannot be folded would stop every reader for ever."""
        try:
            self.rules.fold(view.state, view.position, record)
        except DamagedError as error:
            raise InvalidError(
                f"{self.keys.number(view.position)} is not written: {error.reason}"
            ) from error

    async def _send(self, number: int, record: Record) -> bytes:
        """Create a number until something is known to be there, or was; the id it was sent with."""
        key = self.keys.number(number)
        author = runtime.token(AUTHOR_BYTES)
        data = seal_envelope(self.rules.record_kind, self.keys.prefix, number, author, record)
        await decide(self.store, key, data, lambda: self._trimmed(number))
        return author

    async def _trimmed(self, number: int) -> bool:
        return await greatest_checkpoint(self.store, self.keys, above=number) is not None

    async def checkpoint(self, view: View[State]) -> None:
        """Write down what all numbers below the view's position amount to."""
        if view.position == 0:
            return
        author = runtime.token(AUTHOR_BYTES)
        kind, prefix = self.rules.checkpoint_kind, self.keys.prefix
        data = seal_envelope(kind, prefix, view.position, author, view.state)
        try:
            await self.store.create(self.keys.checkpoint(view.position), data)
        except ExistsError:
            return  # a function of the numbers below: another writer's is the same

    async def trim(self) -> int:
        """Delete numbers and checkpoints below the greatest checkpoint; how many went."""
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
        """One number as it stands now, not yet believed; None if it is missing."""
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
        """The numbers up to the first missing or unreadable one, and why that is unreadable.

        The latter is not raised here: below the greatest checkpoint it does not matter.
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
            # A reader that lags reads several at once; one at the end requests few in vain.
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
        """A checkpoint's view; None if a greater one has replaced it meanwhile."""
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
