"""A followed stream is read number by number, however the leader and the store behave."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from neve import runtime
from neve.cluster.followed_stream import FollowedCache, FollowedObject, FollowedStream
from neve.cluster.node import Node
from neve.cluster.own_stream import OwnStream
from neve.log.keys import wal_stream
from neve.log.wal.seal import Sealer
from neve.settings import PrefetchSettings
from neve.store.deletion import delete_all
from neve.store.memory import MemoryStore
from support.node_world import TOPIC, send, small_settings, started

SETTINGS = small_settings()


class Scene:
    """A leader of topic `t`, and a process that follows its stream."""

    def __init__(self, leader: Node, cache_bytes: int = 1 << 20) -> None:
        self.leader = leader
        self.store = leader.store
        self.taken: list[int] = []
        self.gaps = 0
        self.memory = runtime.MemoryBudget()
        own = OwnStream(self.store, 99, SETTINGS, self.memory)
        self.cache = FollowedCache(own, cache_bytes, self.memory)
        self.stream = FollowedStream(
            self.store,
            leader.incarnation,
            self.cache,
            PrefetchSettings(),
            lag_seconds=5,
            on_object=self._took,
            on_gap=self._gap,
        )

    def _took(self, _: FollowedStream, found: FollowedObject) -> None:
        self.taken.append(found.number)

    def _gap(self, _: FollowedStream) -> None:
        self.gaps += 1

    async def read_all(self) -> None:
        while await self.stream.read_on():
            pass


@contextlib.asynccontextmanager
async def leading() -> AsyncIterator[Node]:
    node = await started(MemoryStore(), SETTINGS, partitions=2)
    yield node
    await node.abort()


async def test_numbers_are_read_in_order_as_they_come() -> None:
    async with leading() as leader:
        scene = Scene(leader)
        await send(leader, ["a"])
        await scene.read_all()
        assert (scene.taken, scene.gaps) == ([0], 1)
        for at in range(9):
            await send(leader, [str(at)], partition=at % 2)
        scene.stream.heard(leader.writer.committed_end)
        assert scene.stream.lag_objects == 9
        await scene.read_all()
        assert scene.taken == list(range(10))
        assert (scene.stream.lag_objects, scene.gaps) == (0, 1)


async def test_numbers_behind_one_that_is_missing_are_not_taken() -> None:
    async with leading() as leader:
        scene = Scene(leader)
        await scene.read_all()
        for at in range(4):
            await send(leader, [str(at)])
        key = wal_stream(leader.incarnation).number(1)
        data = bytes(await leader.store.get(key))
        await delete_all(leader.store, [key])
        scene.stream.heard(4)
        await scene.read_all()
        assert scene.taken == [0]
        await leader.store.create(key, data)
        await scene.read_all()
        assert scene.taken == [0, 1, 2, 3]


async def test_numbers_that_were_rolled_up_are_passed_over_with_a_gap() -> None:
    async with leading() as leader:
        scene = Scene(leader)
        await send(leader, ["a"])
        await scene.read_all()
        await send(leader, ["b"])
        await send(leader, ["c"])
        assert await leader.rollups.roll_up()
        await send(leader, ["d"])
        await scene.read_all()
        assert (scene.taken, scene.gaps) == ([0, 3], 2)
        assert (scene.stream.complete_from, scene.stream.position) == (3, 4)


async def test_it_ends_at_the_seal() -> None:
    async with leading() as leader:
        scene = Scene(leader)
        await send(leader, ["a"])
        await scene.read_all()
        await Sealer(leader.store, leader.incarnation, window=4).seal()
        await scene.read_all()
        assert scene.stream.sealed
        assert scene.taken == [0]
        before = scene.stream.caught_up_at
        scene.stream.heard(1)
        assert scene.stream.caught_up_at == before, "nobody leads there any more"


async def test_the_oldest_objects_are_evicted_and_a_covered_slice_is_whole() -> None:
    async with leading() as leader:
        scene = Scene(leader, cache_bytes=24_000)
        await scene.read_all()
        for at in range(6):
            await send(leader, [str(at) * 1_500])
        scene.stream.heard(6)
        await scene.read_all()
        kept = [each.number for each in scene.stream.objects]
        assert kept == [3, 4, 5]
        assert 0 < scene.cache.share.used <= scene.cache.share.bytes_max == 12_000
        assert scene.stream.complete_from == 3
        topic = leader.cluster.state.topic(TOPIC)
        assert topic is not None
        rows = scene.stream.slices_from(4, (topic.id_bytes, 0))
        assert [entry.base_offset for _, entry in rows] == [4, 5]
        entry = rows[0][1]
        joined = entry._replace(base_offset=3, last_offset=5)
        found = scene.stream.covering(joined)
        assert found is not None
        assert [each.base_offset for each, _ in found] == [3, 4, 5]
        for other in (
            joined._replace(base_offset=2),
            joined._replace(last_offset=6),
            joined._replace(leader_epoch=entry.leader_epoch + 1),
            joined._replace(partition=1),
        ):
            assert scene.stream.covering(other) is None
        scene.stream.forget()
        assert (scene.cache.share.used, len(scene.stream.objects)) == (0, 0)
        assert scene.stream.covering(entry) is None


async def test_what_followed_streams_use_is_taken_from_the_own_stream() -> None:
    memory = runtime.MemoryBudget()
    settings = small_settings(cache_bytes=16_000)
    node = await started(MemoryStore(), settings)
    for at in range(8):
        await send(node, [str(at) * 1_500])
    own = node.own_stream
    alone = own.cached_bytes
    cache = FollowedCache(own, 16_000, memory)
    cache.share.count(8_000)
    own.shrink()
    assert own.cached_bytes <= 8_000 < alone
    await node.abort()
