"""Recovery of partitions: seal their streams, read the tails, then the manifests.

The order ensures that no committed record is missed. A stream is sealed before its tail is read, so
nothing more is committed there. The manifest is read after the tail, so it has all records that
were tiered and trimmed in between. A tail that has a gap, or ends before the offset that a
checkpoint promises, is read again. Then the tail's bytes are read to restore the state of
producers: `log/tail_replay.py`.

Transient store failures delay a take-over and fail it only if they persist. Partitions share what
they read, but none waits for another: each is finished as soon as its own streams and manifest were
read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from neve import runtime
from neve.cluster.state import BrokerRegistration, PartitionState, StreamPart
from neve.errors import DamagedError, NeveError, UnavailableError
from neve.log.cached_slice import CachedObject
from neve.log.keys import wal_stream
from neve.log.manifest.listed import ListedStore
from neve.log.partition import PartitionLog
from neve.log.restore import load_history
from neve.log.segment.history import History
from neve.log.tail import assemble, read_streams
from neve.log.tail_replay import Covering, TailReplay, not_in_memory, replay_tails
from neve.log.wal.reader import StreamTail
from neve.log.wal.seal import Sealer
from neve.log.wal.stores import WalStoreUnavailableError
from neve.settings import PrefetchSettings
from neve.store.port import Store

T = TypeVar("T")

ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
# Some 15 s on top of what the store's own retries take: SlowDown seldom lasts as long.
RETRIES_MAX = 12
RETRY_PAUSE_MS = 50
RETRY_PAUSE_MS_MAX = 2_000
# Partitions whose manifests arrive within this time are finished together, because their tails are
# read with fewer requests then. Slower ones follow in a group of their own.
GROUP_SECONDS = 1.0
# From this count of neighbours on, one listing of their manifests is quicker than reading each.
# Neighbours are partitions whose numbers differ in the last digits only: few enough for a listing
# of a page or two, so that many listings run concurrently.
LISTED_PARTITIONS_MIN = 8
NEIGHBOUR_DIGITS = 2
# The assumed window of a broker that is no longer in the cluster state: the largest that any
# version has allowed.
INFLIGHT_MAX = 64


Taken: TypeAlias = tuple[PartitionLog, PartitionState]


class Recovered(NamedTuple):
    """What a recovery found: where sealed streams end, and what could not be recovered.

    One damaged stream or manifest fails the partitions that need it, and no others.
    """

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
    brokers: Mapping[int, BrokerRegistration],
    taken: Sequence[Taken],
    *,
    prefetch: PrefetchSettings | None = None,
    keep: Callable[[CachedObject], None] = CachedObject.drop,
    covering: Covering = not_in_memory,
    on_recovered: Callable[[Sequence[PartitionLog]], None] = lambda _: None,
) -> Recovered:
    """Bring the logs of newly led partitions to where earlier leaders ended.

    `keep` receives the bytes of their tails as they are read, oldest first, and may drop them.
    `covering` returns what is in memory of them already.
    `on_recovered` is called with logs as soon as they are recovered.
    """
    recovery = _Recovery(
        store,
        own,
        brokers,
        prefetch or PrefetchSettings(),
        keep=keep,
        covering=covering,
        on_recovered=on_recovered,
    )
    try:
        await recovery.run(taken)
    finally:
        await recovery.close()
    return Recovered(recovery.ends, recovery.failed)


class _Found(NamedTuple):
    """What was found about one partition before its tail's bytes are read."""

    log: PartitionLog
    history: History
    tiered: int
    replay: TailReplay


class _Recovery:
    """One recovery of many partitions, over several attempts."""

    def __init__(
        self,
        store: Store,
        own: int,
        brokers: Mapping[int, BrokerRegistration],
        prefetch: PrefetchSettings,
        *,
        keep: Callable[[CachedObject], None],
        covering: Covering,
        on_recovered: Callable[[Sequence[PartitionLog]], None],
    ) -> None:
        self.store = store
        self._own = own
        self._brokers = brokers
        self._prefetch = prefetch
        self._keep = keep
        self._covering = covering
        self._on_recovered = on_recovered
        self._seals: dict[int, asyncio.Task[int]] = {}
        self._attempts: Counter[PartitionLog] = Counter()
        # A failure is raised to each partition that needs the outcome.
        self.tasks = runtime.Tasks(on_failure=lambda _: None)
        self.ends: dict[int, int] = {}
        self.failed: dict[PartitionLog, NeveError] = {}

    async def close(self) -> None:
        await self.tasks.close()

    async def run(self, taken: Sequence[Taken]) -> None:
        """Recover these partitions, or set in `failed` why one cannot be recovered."""
        pending = self._begin(taken)
        while pending:
            tasks = [examination for examination, _, _ in pending]
            await asyncio.wait(tasks, timeout=GROUP_SECONDS)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ready = [row for row in pending if row[0].done()]
            pending = [row for row in pending if not row[0].done()]
            again: list[Taken] = []
            # Each attempt has its own view of the streams, and the views must not be mixed.
            for attempt, rows in itertools.groupby(ready, key=lambda row: row[1]):
                again += await self._finish(
                    attempt, [(examination, row) for examination, _, row in rows]
                )
            pending += self._begin(again)

    def _begin(self, rows: Sequence[Taken]) -> list[_Pending]:
        """Start recovering these partitions. Those with too many attempts fail."""
        for log, _ in rows:
            self._attempts[log] += 1
            if self._attempts[log] > ATTEMPTS_MAX:
                self.failed[log] = DamagedError(
                    log.manifest.keys.prefix,
                    f"committed offsets of {log.name} are neither in a segment nor in a stream: "
                    "run `neve storage verify`",
                )
        left = [row for row in rows if row[0] not in self.failed]
        attempt = _Attempt(self, left)
        return [
            (
                self.tasks.start(attempt.examine(*row, again=self._attempts[row[0]] > 1)),
                attempt,
                row,
            )
            for row in left
        ]

    async def _finish(
        self, attempt: _Attempt, examinations: Sequence[tuple[_Examination, Taken]]
    ) -> list[Taken]:
        """Read the tails of the examined partitions, and complete their logs.

        Returns the partitions to retry.
        """
        found: list[_Found] = []
        again: list[Taken] = []
        for examination, row in examinations:
            try:
                result = examination.result()
            except NeveError as error:
                self.failed[row[0]] = error
                continue
            if result is None:
                again.append(row)
            else:
                found.append(result)
        try:
            replays = [each.replay for each in found]
            await replay_tails(
                self.store,
                replays,
                attempt.tails,
                self._prefetch,
                self._keep,
                covering=self._covering,
            )
        except NeveError as error:  # after many retries; none of these tails was read to its end
            self.failed.update({each.log: error for each in found})
            return again
        rows = {row[0]: row for _, row in examinations}
        again += [rows[each.log] for each in found if each.replay.missing is not None]
        whole = [each for each in found if each.replay.missing is None]
        for each in whole:
            _complete(each)
        self._on_recovered([each.log for each in whole])
        return again

    async def sealed(self, stream: int) -> int:
        """Seal a stream that another process may still write, once. Returns where it ends."""
        if stream not in self._seals:
            self._seals[stream] = self.tasks.start(self._seal(stream))
        return await _outcome(self._seals[stream])

    async def _seal(self, stream: int) -> int:
        broker = self._brokers.get(stream)
        window = broker.inflight if broker is not None else INFLIGHT_MAX
        self.ends[stream] = end = await _patiently(
            lambda: Sealer(self.store, stream, window=window).seal()
        )
        return end

    def must_seal(self, part: StreamPart) -> bool:
        """Whether the stream of this part must be sealed: it is not ours, and not released."""
        return part.end is None and part.incarnation != self._own


class _Attempt:
    """One read of streams and manifests, shared by the partitions that need them."""

    def __init__(self, recovery: _Recovery, rows: Sequence[Taken]) -> None:
        self._recovery = recovery
        self._store = recovery.store
        self._released: dict[int, int] = {}
        self._unreleased: set[int] = set()
        self._reads: dict[int, asyncio.Task[StreamTail]] = {}
        self._listings: dict[_Neighbours, asyncio.Task[ListedStore | None]] = {}
        self._neighbours = Counter(_neighbours(*row) for row in rows)
        self.tails: dict[int, StreamTail] = {}
        for _, state in rows:
            for part in _earlier(state):
                stream = part.incarnation
                if recovery.must_seal(part):
                    self._unreleased.add(stream)
                self._released[stream] = max(part.end or 0, self._released.get(stream, 0))

    async def examine(
        self, log: PartitionLog, state: PartitionState, *, again: bool
    ) -> _Found | None:
        """Read the streams, then the manifest, then the state in the last bundle.

        Returns None if the partition must be retried.
        """
        if again:
            await runtime.sleep(PAUSE_SECONDS)
        await self._read_all(_streams(state))
        through = await self._listed(_neighbours(log, state))

        async def find() -> _Found | None:
            known = await log.manifest.refresh(through)
            tail = assemble(log.topic_id, log.partition, _earlier(state), self.tails, known)
            if tail is None:
                return None
            history, tiered = await load_history(self._store, log.manifest, log.name)
            at_end = History(log.name, history.producers.entries(), history.epochs.starts)
            return _Found(log, history, tiered, TailReplay(log.name, tail, at_end, tiered))

        return await _patiently(find)

    async def _read_all(self, streams: Sequence[int]) -> None:
        reads = []
        for stream in streams:
            if stream not in self._reads:
                self._reads[stream] = self._recovery.tasks.start(self._read(stream))
            reads.append(self._reads[stream])
        for read in reads:
            await _outcome(read)

    async def _read(self, stream: int) -> StreamTail:
        """Read the tail of a stream up to its end, or to where partitions were released."""
        end = self._released[stream]
        if stream in self._unreleased:
            end = await self._recovery.sealed(stream)
        tail = await _patiently(lambda: _tail(self._store, stream, end))
        self.tails[stream] = tail
        return tail

    async def _listed(self, wanted: _Neighbours) -> ListedStore | None:
        """List the manifests of neighbours in one request; None if few are needed, or it fails."""
        if self._neighbours[wanted] < LISTED_PARTITIONS_MIN:
            return None
        if wanted not in self._listings:
            self._listings[wanted] = self._recovery.tasks.start(self._list(wanted[0]))
        return await _outcome(self._listings[wanted])

    async def _list(self, prefix: str) -> ListedStore | None:
        try:
            return await ListedStore.of(self._store, prefix)
        except NeveError:
            return None  # each manifest is then read individually


_Examination: TypeAlias = asyncio.Task[_Found | None]
_Pending: TypeAlias = tuple[_Examination, _Attempt, Taken]
# The common prefix of the keys of neighbouring manifests, and the streams to read before them.
_Neighbours: TypeAlias = tuple[str, tuple[int, ...]]


def _neighbours(log: PartitionLog, state: PartitionState) -> _Neighbours:
    return log.manifest.keys.prefix.rstrip("/")[:-NEIGHBOUR_DIGITS], _streams(state)


def _complete(found: _Found) -> None:
    replay = found.replay
    found.log.recovered(
        replay.tail,
        found.history,
        found.tiered,
        end=replay.history,
        in_memory=replay.in_memory,
    )


async def _outcome(task: asyncio.Task[T]) -> T:
    """Return or raise the outcome of a shared task. Cancelling a caller does not end the task."""
    await asyncio.wait([task])
    return task.result()


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Retry with growing pauses while the store is unavailable, at most RETRIES_MAX times.

    An unreachable WAL store is not retried: the background loops do, and other partitions need not
    wait.
    """
    backoff = runtime.Backoff(RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX)
    for _ in range(RETRIES_MAX):
        try:
            return await work()
        except WalStoreUnavailableError:
            raise
        except UnavailableError:
            await backoff.pause()
    return await work()


async def _tail(store: Store, stream: int, end: int) -> StreamTail:
    tail = (await read_streams(store, [stream]))[stream]
    if tail.position < end:  # continuing from here would assign committed offsets again
        raise UnavailableError(
            wal_stream(stream).prefix, f"it goes to {end} and was read up to {tail.position} only"
        )
    return tail


def _earlier(state: PartitionState) -> list[StreamPart]:
    """Return the parts of earlier epochs. Nothing is written in the current epoch yet."""
    return [part for part in state.streams if part.epoch < state.epoch]


def _streams(state: PartitionState) -> tuple[int, ...]:
    return tuple(sorted({part.incarnation for part in _earlier(state)}))
