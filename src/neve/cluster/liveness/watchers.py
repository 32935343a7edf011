"""Which brokers watch which: a function of the cluster log's state, the same for every process.

Live processes with an address are the watchers. Every live process is watched, also one without an
address, such as a maintenance job: that one cannot be pinged, so its watchers only look at its
heartbeat.

The first watcher of a process is its predecessor on a ring, the others are chosen by rendezvous
hashing. Rendezvous hashing alone would allow a group of brokers that watch only each other: if all
of them died at once, no survivor would notice. On a ring, some survivor always follows a dead one.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import heapq
import struct
from collections.abc import Iterable

from neve.cluster.state import BrokerRegistration

WATCHERS_DEFAULT = 3

_ONE = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_HASH_BYTES = 8
# Incarnations whose place on the ring is remembered: more than a cluster has brokers.
_PLACES_REMEMBERED = 4_096

# The hash of an incarnation, and the incarnation: unique even if two hashes are equal.
_Place = tuple[bytes, int]


def watchers_of(
    broker: BrokerRegistration,
    brokers: Iterable[BrokerRegistration],
    count: int = WATCHERS_DEFAULT,
) -> list[BrokerRegistration]:
    """Return the brokers that watch this one, at most `count`. The order is the same everywhere."""
    return _Ring(brokers).watchers_of(broker, count)


def watched_by(
    me: BrokerRegistration,
    brokers: Iterable[BrokerRegistration],
    count: int = WATCHERS_DEFAULT,
) -> list[BrokerRegistration]:
    """Return the live processes that this broker watches, by incarnation."""
    every = list(brokers)
    ring = _Ring(every)
    others = sorted((row for row in every if row.live), key=lambda row: row.incarnation)
    return [
        row
        for row in others
        if any(each.incarnation == me.incarnation for each in ring.watchers_of(row, count))
    ]


class _Ring:
    """The watchers of a cluster, in the order of their hashes."""

    def __init__(self, brokers: Iterable[BrokerRegistration]) -> None:
        watchers = [row for row in brokers if row.live and row.port != 0]
        self._brokers = {_place(row.incarnation): row for row in watchers}
        self._places = sorted(self._brokers)

    def watchers_of(self, broker: BrokerRegistration, count: int) -> list[BrokerRegistration]:
        own = _place(broker.incarnation)
        others = [place for place in self._places if place != own]
        if not others or count < 1:
            return []
        before = others[bisect.bisect_left(others, own) - 1]  # at the start, the last one
        rest = [place for place in others if place != before]
        chosen = heapq.nlargest(
            count - 1, rest, key=lambda place: _weight(broker.incarnation, place[1])
        )
        return [self._brokers[place] for place in (before, *chosen)]


@functools.lru_cache(maxsize=_PLACES_REMEMBERED)
def _place(incarnation: int) -> _Place:
    data = _ONE.pack(incarnation)
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), incarnation


def _weight(watched: int, watcher: int) -> _Place:
    """Return the weight of a watcher for one watched process.

    A cryptographic hash, because a checksum is linear: every process would rank the watchers by
    the distance of their checksums, and some would watch far more processes than others.
    """
    data = _PAIR.pack(watched, watcher)
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), watcher
