"""Taking over partitions: seal what others may still write, read the tails, then the manifests.

The order is the promise. A stream is sealed before its tail is read, so nothing is committed there
any more; the manifest is read after the tail, so nothing that was tiered and trimmed in between is
missed; and a tail with a gap, or that falls short of what a checkpoint promised, is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from neve import runtime
from neve.cluster.state import Broker, PartitionState, StreamPart
from neve.errors import DamagedError, NeveError, UnavailableError
from neve.log.keys import wal_stream
from neve.log.manifest.manifest import Manifest
from neve.log.partition import PartitionLog
from neve.log.restore import load_history_at
from neve.log.tail import PartitionTail, assemble, read_streams
from neve.log.wal.reader import StreamTail
from neve.log.wal.seal import Sealer
from neve.store.port import Store

T = TypeVar("T")

ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
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
) -> Recovered:
    """Bring the logs of newly led partitions to where their predecessors ended."""
    sealed = await _seal(store, brokers, own, taken)
    ends = {stream: end for stream, end in sealed.items() if isinstance(end, int)}
    due = _due(taken, ends)
    tails: dict[int, StreamTail] = {}
    failed = _failing(taken, sealed)
    behind = [row for row in taken if row[0] not in failed]
    for attempt in range(ATTEMPTS_MAX):
        if attempt > 0:
            await runtime.sleep(PAUSE_SECONDS)
        found = await _each(_incarnations(behind), lambda stream: _tail(store, stream, due[stream]))
        failed |= _failing(behind, found)
        tails |= {stream: tail for stream, tail in found.items() if isinstance(tail, StreamTail)}
        behind = [row for row in behind if row[0] not in failed]
        behind = await _resolved(store, behind, tails, failed)
        if not behind:
            break
    for log, _ in behind:
        failed[log] = DamagedError(
            log.manifest.keys.prefix,
            f"committed offsets of {log.name} are neither in a segment nor in a stream: "
            "run `neve storage verify`",
        )
    return Recovered(tails, ends, failed)


async def _each(
    streams: Iterable[int], work: Callable[[int], Awaitable[T]]
) -> dict[int, T | NeveError]:
    """Do something to several streams side by side: the outcome, or why there is none."""

    async def attempt(stream: int) -> T | NeveError:
        try:
            return await work(stream)
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


async def _resolved(
    store: Store,
    taken: Sequence[Taken],
    tails: Mapping[int, StreamTail],
    failed: dict[PartitionLog, NeveError],
) -> list[Taken]:
    """Recover what the tails suffice for; the partitions that must be read again."""

    async def resolve(log: PartitionLog, state: PartitionState) -> bool:
        try:
            tail = await _tail_of(log, state, tails)
            if tail is None:
                return False
            log.recovered(tail, *await load_history_at(store, log.manifest, log.name))
        except NeveError as error:
            failed[log] = error
        return True

    done = await runtime.gather(*(resolve(log, state) for log, state in taken))
    return [row for row, resolved in zip(taken, done, strict=True) if not resolved]


async def _tail_of(
    log: PartitionLog, state: PartitionState, tails: Mapping[int, StreamTail]
) -> PartitionTail | None:
    manifest: Manifest = log.manifest
    return assemble(log.topic_id, log.partition, _earlier(state), tails, await manifest.refresh())
