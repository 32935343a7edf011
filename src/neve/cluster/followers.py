"""Followers: which brokers follow which stream. The same for every process, like the balance.

The followers of a live process read its stream from the bucket. They serve its partitions to
consumers of their racks, and take them over with a warm tail if it dies.

Followers are live processes with an address whose nodes do not drain. Within each rack they are
ranked by rendezvous hashing. The best of every rack come first, then the second best, and so on;
the leader itself counts as the first of its rack. So followers are in other racks than the leader
and than each other as long as there are such racks, and a process that joins or leaves changes one
follower of a stream at most.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from neve.cluster.state import BrokerRegistration, ClusterState

FOLLOWERS_DEFAULT = 2

_PAIR = struct.Struct(">QQ")
_HASH_BYTES = 8
# Pairs of processes whose weight is remembered: those of a cluster of 100 brokers.
_WEIGHTS_REMEMBERED = 16_384


def followers_of(
    state: ClusterState, incarnation: int, count: int = FOLLOWERS_DEFAULT
) -> tuple[int, ...]:
    """Return the processes that follow the stream of a live one, the preferred one first.

    The stream of a process that is not live has none.
    """
    leader = state.brokers.get(incarnation)
    if leader is None or not leader.live or count < 1:
        return ()
    draining = frozenset(state.draining)
    racks: dict[str, list[int]] = defaultdict(list)
    for row in state.brokers.values():
        if _may_follow(row, draining) and row.incarnation != incarnation:
            racks[row.rack].append(row.incarnation)
    ranked: list[tuple[int, bytes, int]] = []
    for rack, members in racks.items():
        members.sort(key=lambda each: _weight(incarnation, each))
        before = 1 if rack == leader.rack else 0
        ranked += [
            (before + at, _weight(incarnation, each), each) for at, each in enumerate(members)
        ]
    return tuple(each for _, _, each in sorted(ranked)[:count])


def _may_follow(row: BrokerRegistration, draining: frozenset[int]) -> bool:
    return row.live and row.port != 0 and row.node_id not in draining


@functools.lru_cache(maxsize=_WEIGHTS_REMEMBERED)
def _weight(followed: int, follower: int) -> bytes:
    """Return the rank of a follower for one stream: the smallest comes first."""
    return hashlib.blake2b(_PAIR.pack(followed, follower), digest_size=_HASH_BYTES).digest()


class FollowerSets:
    """The followers of all streams, computed once for each change of the brokers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._brokers: Mapping[int, BrokerRegistration] | None = None
        self._draining: tuple[int, ...] = ()
        self._sets: Mapping[int, tuple[int, ...]] = MappingProxyType({})

    def all(self, state: ClusterState) -> Mapping[int, tuple[int, ...]]:
        """Return the followers of each live process."""
        if self._brokers is not state.brokers or self._draining != state.draining:
            self._sets = {
                key: followers_of(state, key, self._count)
                for key, row in state.brokers.items()
                if row.live
            }
            self._brokers, self._draining = state.brokers, state.draining
        return self._sets

    def of(self, state: ClusterState, incarnation: int) -> tuple[int, ...]:
        """Return the followers of one process; none if it is not live."""
        return self.all(state).get(incarnation, ())

    def in_sync(self, state: ClusterState, incarnation: int) -> tuple[int, ...]:
        """Return those followers of a process that it has not reported as lagging."""
        lagging = state.lagging.get(incarnation, ())
        return tuple(each for each in self.of(state, incarnation) if each not in lagging)
