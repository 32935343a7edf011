"""An internal partition and its table."""

from __future__ import annotations

from neve.cluster.node import Node
from neve.records.reference import Record, build_batch
from neve.settings import Settings
from neve.store.port import Store
from support.node_world import small_settings, take_over

TOPIC = "__consumer_offsets"
NARROW = small_settings(segment_bytes=10)


async def led(store: Store, *, node_id: int = 1, settings: Settings = NARROW) -> Node:
    node = await Node.start(store, settings, node_id=node_id, probe=False)
    if node.cluster.state.topic(TOPIC) is None:
        await node.topics.create(TOPIC, 1)
    await take_over(node)
    return node


async def write(node: Node, *rows: tuple[str, str | None]) -> None:
    records = [
        Record(at, 1_000 + at, key.encode(), None if value is None else value.encode())
        for at, (key, value) in enumerate(rows)
    ]
    log = node.leader(TOPIC, 0).log
    await log.append(bytearray(build_batch(records))).commit.wait()


async def state(node: Node) -> dict[str, str]:
    loaded = await node.leader(TOPIC, 0).log.load_state()
    return {key.decode(): value.decode() for key, value in loaded.items()}
