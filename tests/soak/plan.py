"""What a kill loop does, drawn from one seed: settings, load, and the moments of death.

The same seed gives the same plan. What the operating system makes of it (which thread runs when,
how long a write takes) no seed decides; so half of the moments are not times but places in the
broker's own work: before or after its nth call of a kind to the store.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

KIB = 1024

# Store calls at which a broker may die. Seldom ones come early enough to be reached in one life.
CALLS = {
    "create wal": 40,
    "create rollup": 2,
    "create wal-checkpoint": 2,
    "create segment": 6,
    "create index": 6,
    "create manifest": 8,
    "create cluster": 2,
    "delete wal": 10,
    "delete rollup": 2,
    "delete segment": 4,
}


@dataclass(frozen=True)
class Moment:
    """When a broker dies: after so many acknowledgements or bytes, after a time, or at a call.

    `start`: so long after it was launched, ready or not.
    """

    kind: str
    amount: float = 0.0
    call: str = ""
    when: str = ""

    @property
    def death(self) -> dict[str, object] | None:
        if self.kind != "call":
            return None
        return {"call": self.call, "nth": int(self.amount), "when": self.when}


@dataclass(frozen=True)
class Load:
    """Who writes how much. Rates are loops a second of each producer, of a few records each."""

    librdkafka_idempotent: int = 2
    librdkafka_plain: int = 1
    raw_idempotent: int = 1
    raw_plain: int = 1
    doubling: int = 1
    per_second: float = 40.0
    value_bytes_max: int = 1_000
    consumers: int = 2
    committers: int = 1


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    moments: list[Moment]
    settings: dict[str, object]
    load: Load = field(default_factory=Load)
    bug: str = ""
    may_end_by_itself: bool = False
    life_seconds_max: float = 1.5
    faults: dict[str, object] = field(default_factory=dict)


TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "steady": (3, {}),
    "by-size": (2, {"retention.bytes": str(96 * KIB), "segment.bytes": str(16 * KIB)}),
    "by-age": (1, {"retention.ms": "1500", "segment.ms": "250"}),
    "trickle": (2, {"segment.bytes": str(1024 * KIB), "segment.ms": "3600000"}),
}
KEPT = ("steady", "trickle")
"""Topics from which retention takes nothing."""
RETAINED = ("by-size", "by-age")


def draw_moment(chance: random.Random) -> Moment:
    kind = chance.choice(["acks", "bytes", "seconds", "start", "call", "call", "call", "call"])
    if kind == "acks":
        return Moment(kind, chance.randrange(1, 600))
    if kind == "bytes":
        return Moment(kind, chance.randrange(1, 300 * KIB))
    if kind == "seconds":
        return Moment(kind, chance.uniform(0.0, 1.2))
    if kind == "start":
        return Moment(kind, chance.uniform(0.0, 0.4))
    call = chance.choice(list(CALLS))
    return Moment(
        kind, chance.randrange(1, CALLS[call] + 1), call, chance.choice(["before", "after"])
    )


def draw_settings(chance: random.Random, folder: Path) -> dict[str, object]:
    """So small that flushing, tiering, rolling up and retention happen all the time."""
    return {
        # A killed process loses nothing that it gave to the system: only a power cut would.
        "store.folder.fsync": False,
        "wal.linger.ms": chance.choice([0, 0, 5, 20]),
        "wal.object.bytes": chance.choice([4 * KIB, 16 * KIB, 64 * KIB]),
        "wal.inflight.max": chance.choice([1, 2, 4, 8]),
        "wal.tail.objects": chance.choice([8, 24, 48]),
        "segment.bytes": chance.choice([16 * KIB, 48 * KIB]),
        "segment.ms": chance.choice([200, 800]),
        "manifest.checkpoint.numbers": chance.choice([2, 4, 8]),
        "maintenance.interval.ms": 50,
        "maintenance.gc.interval.ms": 150,
        "retention.check.ms": 100,
        "cluster.poll.ms": 300,
        "tail.cache.bytes": chance.choice([0, 64 * KIB, 4096 * KIB]),
        "index.cache.folder": chance.choice(["", str(folder / "indexes")]),
        "groups.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
        "topics.auto.create": False,
    }


def draw_plan(seed: int, folder: Path, kills: int) -> Plan:
    chance = random.Random(seed)
    return Plan(seed, [draw_moment(chance) for _ in range(kills)], draw_settings(chance, folder))
