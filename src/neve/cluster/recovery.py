"""Taking over partitions: seal what others may still write, read the tails, then the manifests.

The order is the promise. A stream is sealed before its tail is read, so nothing is committed there
any more; the manifest is read after the tail, so nothing that was tiered and trimmed in between is
missed; and a tail with a gap, or that falls short of what a checkpoint promised, is read again.
Then the tail's bytes are read, for the producers that wrote them: `log/tail_bytes.py`.

A store that fails in a passing way delays a take-over. It ends one only if it goes on for long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from neve import runtime
from neve.cluster.state import Broker, PartitionState, StreamPart
from neve.errors import DamagedError, NeveError, UnavailableError
from neve.log.held import HeldObject
from neve.log.keys import wal_stream
from neve.log.manifest.listed import ListedStore
from neve.log.manifest.manifest import Manifest
from neve.log.partition import PartitionLog
from neve.log.restore import load_history_at
from neve.log.segment.history import History
from neve.log.tail import PartitionTail, assemble, read_streams
from neve.log.tail_bytes import TailReading, read_tails
from neve.log.wal.reader import StreamTail
from neve.log.wal.seal import Sealer
from neve.settings import PrefetchSettings
from neve.store.port import Store

T = TypeVar("T")

ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
# Some 15 s on top of what the store's own retries take: SlowDown seldom lasts as long.
RETRIES_MAX = 12
RETRY_PAUSE_MS = 50
RETRY_PAUSE_MS_MAX = 2_000
# From so many partitions among neighbours on, one listing of their manifests is quicker than a look
# at each. Neighbours are those whose numbers differ in the last digits only: few enough for a
# listing of a page or two, so that many are listed side by side.
LISTED_PARTITIONS_MIN = 8
NEIGHBOUR_DIGITS = 2
# A broker that the cluster state no longer knows was of this version or older: its most, then.
INFLIGHT_MOST = 64


Taken: TypeAlias = tuple[PartitionLog, PartitionState]


class Recovered(NamedTuple):
    """What a recovery found: streams' tails, where sealed ones end, and what could not be read.

    One damaged stream or manifest fails the partitions that need it, and no others.
    """

    tails: Mapping[int, StreamTail]
    ends: Mapping[int, int]
    failed: Mapping[PartitionLog, NeveError] = MappingProxyType({})


def raise_first(failures: Sequence[NeveError]) -> None:
    """Raise the first failure, if there is one, with a note of each other."""
    for other in failures[1:]:
        failures[0].add_note(f"and {other}")
    if failures:
        raise failures[0]


async def recover(
    store: Store,
    own: int,
    brokers: Mapping[int, Broker],
    taken: Sequence[Taken],
    *,
    prefetch: PrefetchSettings | None = None,
    keep: Callable[[HeldObject], None] = HeldObject.drop,
) -> Recovered:
    """Bring the logs of newly led partitions to where their predecessors ended.

    `keep` is handed the bytes of their tails as these are read, oldest first: a cache that drops
    what it has no room for.
    """
    sealed = await _seal(store, brokers, own, taken)
    ends = {stream: end for stream, end in sealed.items() if isinstance(end, int)}
    failed = _failing(taken, sealed)
    recovery = _Recovery(store, _due(taken, ends), prefetch or PrefetchSettings(), keep, failed)
    behind = [row for row in taken if row[0] not in failed]
    for attempt in range(ATTEMPTS_MAX):
        if attempt > 0:
            await runtime.sleep(PAUSE_SECONDS)
        behind = await recovery.attempt(behind)
        if not behind:
            break
    for log, _ in behind:
        failed[log] = DamagedError(
            log.manifest.keys.prefix,
            f"committed offsets of {log.name} are neither in a segment nor in a stream: "
            "run `neve storage verify`",
        )
    return Recovered(recovery.tails, ends, failed)


class _Found(NamedTuple):
    """What was found about one partition before its tail's bytes are read."""

    log: PartitionLog
    state: PartitionState
    history: History
    tiered: int
    reading: TailReading


class _Recovery:
    """One recovery of many partitions, over several attempts."""

    def __init__(
        self,
        store: Store,
        due: Mapping[int, int],
        prefetch: PrefetchSettings,
        keep: Callable[[HeldObject], None],
        failed: dict[PartitionLog, NeveError],
    ) -> None:
        self._store = store
        self._due = due
        self._prefetch = prefetch
        self._keep = keep
        self._failed = failed
        self.tails: dict[int, StreamTail] = {}

    async def attempt(self, taken: Sequence[Taken]) -> list[Taken]:
        """Recover what can be recovered now; the partitions that must be looked at again."""
        found = await _each(
            _incarnations(taken), lambda stream: _tail(self._store, stream, self._due[stream])
        )
        self._failed.update(_failing(taken, found))
        self.tails |= {at: tail for at, tail in found.items() if isinstance(tail, StreamTail)}
        healthy = [row for row in taken if row[0] not in self._failed]
        through = await self._listed(healthy)
        looks = await runtime.gather(
            *(self._find(log, state, through.get(_neighbours(log))) for log, state in healthy)
        )
        readings = [row for row in looks if row is not None]
        await self._read(readings)
        again = []
        for row, look in zip(healthy, looks, strict=True):
            if row[0] in self._failed:
                continue
            if look is None or look.reading.missing is not None:
                again.append(row)
            else:
                _finish(look)
        return again

    async def _listed(self, taken: Sequence[Taken]) -> dict[str, Store]:
        """Neighbouring manifests of which many are wanted, listed at once; by their prefix."""
        wanted = Counter(_neighbours(log) for log, _ in taken)
        many = [prefix for prefix, count in wanted.items() if count >= LISTED_PARTITIONS_MIN]
        try:
            stores = await runtime.gather(*(ListedStore.of(self._store, at) for at in many))
        except NeveError:
            return {}  # each is read by itself then
        return dict(zip(many, stores, strict=True))

    async def _find(
        self, log: PartitionLog, state: PartitionState, through: Store | None
    ) -> _Found | None:
        """The manifest, after the streams, and what the last bundle knows; None: look again."""

        async def look() -> _Found | None:
            tail = await _tail_of(log, state, self.tails, through)
            if tail is None:
                return None
            history, tiered = await load_history_at(self._store, log.manifest, log.name)
            at_end = History(log.name, history.producers.entries(), history.epochs.starts)
            reading = TailReading(log.name, tail, at_end, tiered)
            return _Found(log, state, history, tiered, reading)

        try:
            return await _patiently(look)
        except NeveError as error:
            self._failed[log] = error
            return None

    async def _read(self, found: Sequence[_Found]) -> None:
        readings = [row.reading for row in found]
        try:
            await read_tails(self._store, readings, self.tails, self._prefetch, self._keep)
        except NeveError as error:  # retried for long: nobody's tail is known to its end
            self._failed.update({row.log: error for row in found})


def _neighbours(log: PartitionLog) -> str:
    """What the keys of this manifest and of its neighbours' begin with."""
    return log.manifest.keys.prefix.rstrip("/")[:-NEIGHBOUR_DIGITS]


def _finish(found: _Found) -> None:
    reading = found.reading
    found.log.recovered(
        reading.tail,
        found.history,
        found.tiered,
        end=reading.history,
        in_memory=reading.in_memory,
    )


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Try again, with growing pauses, while the store fails in a passing way."""
    backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
    for _ in range(RETRIES_MAX):
        try:
            return await work()
        except UnavailableError:
            await backoff.pause()
    return await work()


async def _each(
    streams: Iterable[int], work: Callable[[int], Awaitable[T]]
) -> dict[int, T | NeveError]:
    """Do something to several streams side by side: the outcome, or why there is none."""

    async def attempt(stream: int) -> T | NeveError:
        try:
            return await _patiently(lambda: work(stream))
        except NeveError as error:
            return error

    ordered = sorted(set(streams))
    outcomes = await runtime.gather(*(attempt(stream) for stream in ordered))
    return dict(zip(ordered, outcomes, strict=True))


def _due(taken: Iterable[Taken], ends: Mapping[int, int]) -> dict[int, int]:
    """Up to which number each stream must be read: its end, or where partitions were released."""
    due: dict[int, int] = {}
    for _, state in taken:
        for part in _earlier(state):
            end = ends.get(part.incarnation, part.end or 0)
            due[part.incarnation] = max(end, due.get(part.incarnation, 0))
    return due


async def _tail(store: Store, stream: int, end: int) -> StreamTail:
    tail = (await read_streams(store, [stream]))[stream]
    if tail.position < end:  # going on from here would give committed offsets out again
        raise UnavailableError(
            wal_stream(stream).prefix, f"it goes to {end} and was read up to {tail.position} only"
        )
    return tail


def _failing(
    taken: Iterable[Taken], outcomes: Mapping[int, object]
) -> dict[PartitionLog, NeveError]:
    """The partitions that need a stream with which something failed."""
    failed: dict[PartitionLog, NeveError] = {}
    for log, state in taken:
        for part in _earlier(state):
            outcome = outcomes.get(part.incarnation)
            if isinstance(outcome, NeveError):
                failed[log] = outcome
    return failed


async def _seal(
    store: Store, brokers: Mapping[int, Broker], own: int, taken: Sequence[Taken]
) -> dict[int, int | NeveError]:
    """Seal every stream that was neither released nor is our own; where each ends."""
    unreleased = sorted(
        {
            part.incarnation
            for _, state in taken
            for part in _earlier(state)
            if part.end is None and part.incarnation != own
        }
    )

    async def seal(incarnation: int) -> int:
        broker = brokers.get(incarnation)
        window = broker.inflight if broker is not None else INFLIGHT_MOST
        return await Sealer(store, incarnation, window=window).seal()

    return await _each(unreleased, seal)


def _incarnations(taken: Iterable[Taken]) -> set[int]:
    return {part.incarnation for _, state in taken for part in _earlier(state)}


def _earlier(state: PartitionState) -> list[StreamPart]:
    """All but the leadership that begins now: nothing is written under it yet."""
    return [part for part in state.streams if part.epoch < state.epoch]


async def _tail_of(
    log: PartitionLog,
    state: PartitionState,
    tails: Mapping[int, StreamTail],
    through: Store | None,
) -> PartitionTail | None:
    manifest: Manifest = log.manifest
    known = await manifest.refresh(through)
    return assemble(log.topic_id, log.partition, _earlier(state), tails, known)
