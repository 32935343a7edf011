"""What a cluster loop does, drawn from one seed: the order of its events, settings and load.

The same seed gives the same plan. What the operating system makes of it no seed decides.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NODES = (1, 2, 3)
KIB = 1024
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "steady": (6, {}),
    "by-size": (3, {"segment.bytes": str(32 * KIB)}),
}
DRAWN_EVENTS = ("pause", "store", "peers", "one-peer", "store-of-all", "restart-all")


@dataclass(frozen=True)
class Event:
    """Something that happens to one broker or to all, and for how long.

    `kill`: kill -9, and a start after `seconds`. `pause`: SIGSTOP and SIGCONT. `store`: one broker
    is cut off from the store; `peers`: from the other brokers; `one-peer`: from `other`.
    `store-of-all`: the store is gone for all. `restart-all`: kill -9 of all at once. Node 0: all.
    """

    kind: str
    node: int = 0
    seconds: float = 0.0
    other: int = 0


@dataclass(frozen=True)
class ClusterPlan:
    seed: int
    events: list[Event]
    settings: dict[str, object]
    producers: int = 3
    consumers: int = 2
    per_second: float = 15.0
    value_bytes_max: int = 600
    bug: str = ""


def draw_settings(chance: random.Random, session_ms: int) -> dict[str, object]:
    """So small that flushing, tiering and rolling up happen all the time, and failover is fast."""
    return {
        # A killed process loses nothing that it gave to the system: only a power cut would.
        "store.folder.fsync": False,
        "wal.linger.ms": chance.choice([0, 5, 20]),
        "wal.object.bytes": chance.choice([16 * KIB, 64 * KIB]),
        "wal.inflight.max": chance.choice([2, 4]),
        "wal.tail.objects": chance.choice([16, 48]),
        "segment.bytes": chance.choice([32 * KIB, 64 * KIB]),
        "segment.ms": chance.choice([500, 2_000]),
        "tail.cache.bytes": chance.choice([64 * KIB, 4096 * KIB]),
        "manifest.checkpoint.numbers": chance.choice([4, 8]),
        "maintenance.interval.ms": 100,
        "maintenance.gc.interval.ms": 500,
        "cluster.poll.ms": 1_000,
        "cluster.session.ms": session_ms,
        "cluster.heartbeat.ms": session_ms // 6,
        "cluster.rebalance.delay.ms": 500,
        "groups.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
        "topics.auto.create": False,
    }


def draw_event(kind: str, node: int, chance: random.Random, session: float, outage: float) -> Event:
    """Return an event of this kind. `session` is the session time-out, in seconds."""
    other = chance.choice([each for each in NODES if each != node])
    longest = {
        "kill": 2 * session,
        "pause": 3 * session,
        "store": 2 * session,
        "peers": 2 * session,
        "one-peer": 2 * session,
        "store-of-all": outage,
        "restart-all": 0.0,
    }[kind]
    shortest = {"pause": 1.5 * session, "store-of-all": outage}.get(kind, 0.0)
    seconds = round(chance.uniform(shortest, longest), 3)
    node = 0 if kind in ("store-of-all", "restart-all") else node
    return Event(kind, node, seconds, other if kind == "one-peer" else 0)


def draw_plan(
    seed: int, *, kills: int, others: int, session_ms: int, outage_seconds: float
) -> ClusterPlan:
    """`kills` of each broker, and `others` of each other kind of event, in any order."""
    chance = random.Random(seed)
    wanted = [("kill", node) for node in NODES for _ in range(kills)]
    wanted += [(kind, chance.choice(NODES)) for kind in DRAWN_EVENTS for _ in range(others)]
    chance.shuffle(wanted)
    session = session_ms / 1000
    events = [draw_event(kind, node, chance, session, outage_seconds) for kind, node in wanted]
    return ClusterPlan(seed, events, draw_settings(chance, session_ms))
