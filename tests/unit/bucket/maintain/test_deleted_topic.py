"""A topic deleted under a job: told as that and not as damage, others go on, nothing stays behind.

The topic goes at one of the job's calls after the other: from the cluster log alone, with all its
objects, as a broker's purge sweeps them, or so long ago that the job has to look again.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import pytest

from neve import runtime
from neve.bucket.maintain.jobs import Job, Kind, Outcome, do_here, plan_units
from neve.cluster.node import Node
from neve.log.keys import topic_prefix
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Wrapper
from support.maintenance_world import filled
from support.node_world import TOPIC, batch_of, copied, small_settings, topic_of

T = TypeVar("T")
Manner: TypeAlias = Literal["deleted", "swept", "swept long ago"]
MANNERS: tuple[Manner, ...] = ("deleted", "swept", "swept long ago")
OTHER = "u"
URL = "memory://anything"
SETTINGS = small_settings()
PURGE_DELAY_SECONDS = SETTINGS.cluster.purge_delay_ms / 1000
GONE = {f"topic {TOPIC!r} was deleted meanwhile", f"there is no topic {TOPIC!r}"}
OPTIONS: dict[Kind, tuple[tuple[str, Any], ...]] = {
    "merge": (),
    "expire": (),
    "build-index": (),
    "verify": (("settle_seconds", 0),),
}


class Interrupted(Wrapper):
    """A store at whose call number `at` something else happens first.

    With `only_reads` it is the first from there on that writes nothing: what takes long would let
    a write time out.
    """

    def __init__(
        self,
        bucket: MemoryBucket,
        at: int,
        step: Callable[[], Awaitable[None]],
        *,
        only_reads: bool,
    ) -> None:
        super().__init__(MemoryStore(bucket))
        self.calls = 0
        self.interrupted = False
        self._at = at
        self._step = step
        self._passed = ("create", "put") if only_reads else ()

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        if self.calls >= self._at and not self.interrupted and call.operation not in self._passed:
            self.interrupted = True
            await self._step()
        return await work()


@pytest.fixture(scope="module")
def origin() -> MemoryBucket:
    """Some segments of two topics, of which retention by age takes all."""
    bucket = MemoryBucket()

    async def fill() -> None:
        node, _ = await filled(MemoryStore(bucket), 3)
        other = await node.topics.create(OTHER, 1)
        for number in range(2):
            await node.leader(other.name, 0).append(batch_of([f"{number}"])).commit.wait()
            assert await node.leader(OTHER, 0).log.tier()
        await node.close()

    runtime.simulate(fill(), seed=3)
    return bucket


class Scene:
    """One job over both topics, and a broker that deletes the first at one of the job's calls."""

    def __init__(self, origin: MemoryBucket, kind: Kind, manner: Manner, at: int) -> None:
        self._bucket = copied(origin)
        self._kind = kind
        self._manner = manner
        late = manner == "swept long ago"
        self._store = Interrupted(self._bucket, at, self._delete, only_reads=late)
        self.in_time = False
        """Whether the topic went before the job was done with it."""

    async def run(self) -> list[Outcome]:
        if self._kind == "build-index":
            for key in [key for key in self._bucket.keys if key.endswith(".index")]:
                self._bucket.remove(key)
        self._node = await Node.start(MemoryStore(self._bucket), SETTINGS, node_id=1, probe=False)
        self._prefix = topic_prefix(TOPIC, topic_of(self._node).id_bytes)
        job = Job(self._kind, URL, options=OPTIONS[self._kind])
        units = await plan_units(MemoryStore(self._bucket), job)
        outcomes = await do_here(self._store, job, units, on_outcome=self._told)
        if self._store.interrupted:
            if self._manner == "swept long ago":
                self._check_nothing_left()
            await self._purge_all()
            self._check_nothing_left()
        await self._node.close()
        return outcomes

    def _told(self, outcome: Outcome) -> None:
        if outcome.topic == TOPIC:
            self.in_time = self._store.interrupted

    async def _delete(self) -> None:
        await self._node.topics.delete(TOPIC)
        if self._manner != "deleted":
            await self._node.purging.purge()
            self._check_nothing_left()
        if self._manner == "swept long ago":
            await runtime.sleep(PURGE_DELAY_SECONDS)

    async def _purge_all(self) -> None:
        for _ in range(10):
            await self._node.purging.purge()
            if not self._node.cluster.state.deleted:
                return
            await runtime.sleep(PURGE_DELAY_SECONDS / 2)
        raise AssertionError("never purged")

    def _check_nothing_left(self) -> None:
        left = [key for key in self._bucket.keys if key.startswith(self._prefix)]
        assert not left, left


def check_every(step: int, origin: MemoryBucket, kind: Kind, manner: Manner) -> None:
    """Let the topic go at each `step`-th call until the job is done with it before that."""
    told: set[str] = set()
    for at in itertools.count(1, step):
        scene = Scene(origin, kind, manner, at)
        first, other = runtime.simulate(scene.run(), seed=5)
        if not scene.in_time:
            break
        assert other.ok, (at, other)
        assert first.ok or first.error in GONE, (at, first)
        told.add(first.error)
    assert told & GONE


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_it_is_told_as_deleted_and_leaves_nothing(
    origin: MemoryBucket, kind: Kind, manner: Manner
) -> None:
    check_every(7, origin, kind, manner)


@pytest.mark.soak
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_the_same_at_every_call(origin: MemoryBucket, kind: Kind, manner: Manner) -> None:
    check_every(1, origin, kind, manner)
