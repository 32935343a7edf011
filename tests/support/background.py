"""Background loops at work on a node in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from neve import runtime
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.node import Node
from neve.errors import NeveError
from neve.log.keys import segment_prefix
from neve.settings import Settings
from support.node_world import (
    append,
    small_settings,
    topic_of,
)
from support.scripted_store import ScriptedStore


async def send(node: Node, values: list[str], partition: int = 0) -> int:
    """A batch of records of today, which retention leaves alone."""
    appended = append(node, values, partition, timestamp=runtime.now_ms())
    await appended.commit.wait()
    return appended.base_offset


@asynccontextmanager
async def upkeep(node: Node, settings: Settings | None = None) -> AsyncIterator[list[NeveError]]:
    """BackgroundLoops at work; what it says when the incarnation is over."""
    told: list[NeveError] = []
    running = BackgroundLoops(node, settings or small_settings(), on_fenced=told.append)
    running.start()
    try:
        yield told
    finally:
        await running.close()
        await node.abort()


def segments(store: ScriptedStore, node: Node, partition: int = 0) -> list[str]:
    topic = topic_of(node)
    keys = store.listed(segment_prefix(topic.name, topic.id_bytes, partition))
    return [key for key in keys if key.endswith(".kfs")]
