"""The first start of a node on a bucket: the probe and the settings."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.log.keys import wal_stream
from neve.settings import Settings, WalSettings
from neve.store.memory import MemoryStore
from neve.store.port import Buffer
from neve.store.probe import BrokenRuleError
from support.node_world import (
    TOPIC,
    send,
    small_settings,
)
from support.scripted_store import ScriptedStore, hold, in_simulation


class OverwritingStore(MemoryStore):
    """A store whose create does not look whether the key is taken."""

    async def create(self, key: str, data: Buffer) -> None:
        await self.put(key, data)


@in_simulation
async def test_a_store_that_breaks_a_rule_is_refused_before_anything_is_written() -> None:
    store = OverwritingStore()
    with pytest.raises(BrokenRuleError):
        await Node.start(store, small_settings(), node_id=1)
    assert await store.list("") == []


@in_simulation
async def test_a_bucket_is_probed_at_its_first_start_alone(store: ScriptedStore) -> None:
    first = await Node.start(store, small_settings(), node_id=1)
    probed = [call.key for call in store.calls if call.key.startswith("probe/")]
    assert probed
    second = await Node.start(store, small_settings(), node_id=1)
    assert [call.key for call in store.calls if call.key.startswith("probe/")] == probed
    await first.abort()
    await second.abort()


@pytest.mark.parametrize(
    ("linger_ms", "puts_cost", "objects"), [(-1, False, 2), (0, False, 4), (0, True, 4)]
)
def test_small_records_join_unless_told_otherwise(
    linger_ms: int, puts_cost: bool, objects: int
) -> None:
    async def written() -> int:
        store = ScriptedStore()
        settings = Settings(wal=WalSettings(linger_ms=linger_ms))
        node = await Node.start(store, settings, node_id=1, puts_cost=puts_cost, probe=False)
        await node.topics.create(TOPIC, 1)
        prefix = wal_stream(node.incarnation).prefix
        before = len(store.listed(prefix))
        release = asyncio.Event()
        store.when("create", wal_stream(node.incarnation).number(0), hold(release))
        sending = []
        for text in "abcd":
            sending.append(runtime.spawn(send(node, [text])))
            await runtime.sleep(0.001)
        release.set()
        await asyncio.gather(*sending)
        count = len(store.listed(prefix)) - before
        await node.abort()
        return count

    assert runtime.simulate(written(), seed=1) == objects


@pytest.mark.parametrize(
    ("linger_ms", "puts_cost", "waits_seconds"), [(-1, False, 0), (-1, True, 0.1), (30, True, 0.03)]
)
def test_the_linger_is_as_set_or_as_the_store_suggests(
    linger_ms: int, puts_cost: bool, waits_seconds: float
) -> None:
    async def waited() -> float:
        settings = Settings(wal=WalSettings(linger_ms=linger_ms))
        node = await Node.start(
            MemoryStore(), settings, node_id=1, puts_cost=puts_cost, probe=False
        )
        await node.topics.create(TOPIC, 1)
        started_at = runtime.monotonic()
        await send(node, ["a"])
        taken = runtime.monotonic() - started_at
        await node.abort()
        return taken

    assert runtime.simulate(waited(), seed=1) == pytest.approx(waits_seconds)
