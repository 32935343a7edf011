"""Two thousand partitions in one process on a local folder: starting, idling, superseded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.upkeep import Upkeep
from neve.errors import FencedError, NeveError
from neve.settings import ClusterSettings, Settings, UpkeepSettings
from neve.store.folder import FolderStore
from neve.store.url import stack
from node_world import append, batch_of

PARTITIONS = 2_000
# Processor time, since tests run beside others: the promise is 10 s of a clock on a quiet machine.
START_SECONDS_MAX = 10.0


async def started(folder: Path, settings: Settings, node_id: int = 1) -> Node:
    store = stack(FolderStore(folder), settings.store).store
    return await Node.start(store, settings, node_id=node_id)


@pytest.mark.slow
@pytest.mark.parametrize("topics", [1, 200])
async def test_a_process_with_many_partitions_starts_soon_and_idles_cheaply(
    tmp_path: Path, topics: int
) -> None:
    settings = Settings()
    node = await started(tmp_path, settings)
    for at in range(topics):
        await node.create_topic(f"t{at}", PARTITIONS // topics)
    for (topic_id, partition), _ in list(node.partitions.items()):
        node.append(topic_id, partition, batch_of(["a"], timestamp=runtime.now_ms()))
    await node.writer.flush()
    await runtime.gather(*(log.tier() for log in list(node.partitions.values())[::40]))
    await node.close()

    before = time.process_time()
    node = await started(tmp_path, settings)
    await node.lead()
    taken = time.process_time() - before
    assert len(node.partitions) == PARTITIONS
    assert all(log.next_offset == 1 for log in node.partitions.values())
    assert taken < START_SECONDS_MAX

    upkeep = Upkeep(node, settings)
    upkeep.start()
    await runtime.sleep(3)
    before, began = time.process_time(), time.monotonic()
    await runtime.sleep(5)
    idle_share = (time.process_time() - before) / (time.monotonic() - began)
    await upkeep.close()
    await node.close()
    assert idle_share < 0.05


async def test_the_second_process_of_a_node_ends_the_first(tmp_path: Path) -> None:
    settings = Settings(
        cluster=ClusterSettings(poll_ms=100), upkeep=UpkeepSettings(tend_ms=100, collect_ms=100)
    )
    first = await started(tmp_path, settings)
    await first.create_topic("t", 1)
    topic = first.topic("t")
    assert topic is not None
    await append(first, ["a"], timestamp=runtime.now_ms()).commit.wait()
    told: list[NeveError] = []
    upkeep = Upkeep(first, settings, on_fenced=told.append)
    upkeep.start()
    second = await started(tmp_path, settings)
    await second.lead()
    async with runtime.deadline(10):
        while not told:
            await runtime.sleep(0.05)
    assert isinstance(told[0], FencedError)
    assert first.partitions == {}
    appended = append(second, ["b"], timestamp=runtime.now_ms())
    await appended.commit.wait()
    assert appended.base_offset == 1
    await upkeep.close()
    await first.abort()
    await second.close()
