"""Taking over partitions: seal what others may still write, read the tails, then the manifests.

The order is the promise. A stream is sealed before its tail is read, so nothing is committed there
any more; the manifest is read after the tail, so nothing that was tiered and trimmed in between is
missed; and a tail with a gap, or that falls short of what a checkpoint promised, is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from neve import runtime
from neve.cluster.state import Broker, PartitionState, StreamPart
from neve.errors import DamagedError
from neve.log.manifest.manifest import Manifest
from neve.log.partition import PartitionLog
from neve.log.restore import load_history
from neve.log.tail import PartitionTail, assemble, read_streams
from neve.log.wal.reader import StreamTail
from neve.log.wal.seal import Sealer
from neve.store.port import Store

ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
# A broker that the cluster state no longer knows was of this version or older: its most, then.
INFLIGHT_MOST = 64


class Recovered(NamedTuple):
    """What a recovery found: the streams' tails, and where sealed ones end."""

    tails: Mapping[int, StreamTail]
    ends: Mapping[int, int]


async def recover(
    store: Store,
    own: int,
    brokers: Mapping[int, Broker],
    taken: Sequence[tuple[PartitionLog, PartitionState]],
) -> Recovered:
    """Bring the logs of newly led partitions to where their predecessors ended."""
    ends = await _seal(store, brokers, own, taken)
    behind = list(taken)
    for _ in range(ATTEMPTS_MAX):
        tails = await read_streams(store, _incarnations(behind))
        behind = await _resolved(store, behind, tails)
        if not behind:
            return Recovered(tails, ends)
        await runtime.sleep(PAUSE_SECONDS)
    names = ", ".join(log.name for log, _ in behind)
    raise DamagedError(
        behind[0][0].manifest.keys.prefix,
        f"committed offsets of {names} are neither in a segment nor in a stream: "
        "run `neve storage verify`",
    )


async def _seal(
    store: Store,
    brokers: Mapping[int, Broker],
    own: int,
    taken: Sequence[tuple[PartitionLog, PartitionState]],
) -> dict[int, int]:
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

    ends = await runtime.gather(*(seal(incarnation) for incarnation in unreleased))
    return dict(zip(unreleased, ends, strict=True))


def _incarnations(taken: Iterable[tuple[PartitionLog, PartitionState]]) -> set[int]:
    return {part.incarnation for _, state in taken for part in _earlier(state)}


def _earlier(state: PartitionState) -> list[StreamPart]:
    """All but the leadership that begins now: nothing is written under it yet."""
    return [part for part in state.streams if part.epoch < state.epoch]


async def _resolved(
    store: Store,
    taken: Sequence[tuple[PartitionLog, PartitionState]],
    tails: Mapping[int, StreamTail],
) -> list[tuple[PartitionLog, PartitionState]]:
    """Recover what the tails suffice for; the partitions that must be read again."""

    async def resolve(log: PartitionLog, state: PartitionState) -> bool:
        tail = await _tail_of(log, state, tails)
        if tail is None:
            return False
        log.recovered(tail, await load_history(store, log.manifest, log.name))
        return True

    done = await runtime.gather(*(resolve(log, state) for log, state in taken))
    return [row for row, resolved in zip(taken, done, strict=True) if not resolved]


async def _tail_of(
    log: PartitionLog, state: PartitionState, tails: Mapping[int, StreamTail]
) -> PartitionTail | None:
    manifest: Manifest = log.manifest
    return assemble(log.topic_id, log.partition, _earlier(state), tails, await manifest.refresh())
