from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import describe_log_dirs
from neve.protocol.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from support.broker_world import STORE_URL, StandIn, ask, produce, start_broker, versions

HIGHEST = DESCRIBE_LOG_DIRS.max_version
_Topic = DESCRIBE_LOG_DIRS.Request.Topic


async def told(broker: StandIn, topics: Any, version: int = HIGHEST) -> Any:
    answer = await ask(broker, describe_log_dirs, DESCRIBE_LOG_DIRS, version, topics=topics)
    assert answer.error_code == 0
    (folder,) = answer.results
    assert (folder.error_code, folder.log_dir) == (0, STORE_URL)
    return folder


def sizes(folder: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in folder.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", versions(DESCRIBE_LOG_DIRS))
async def test_the_bucket_is_the_one_folder_with_all_partitions(version: int) -> None:
    broker = await start_broker({"b": 2, "a": 1})
    await produce(broker, "b", 3, partition=1)
    folder = await told(broker, None, version)
    found = sizes(folder)
    assert list(found) == [("a", 0), ("b", 0), ("b", 1)]
    assert found["a", 0] == found["b", 0] == 0
    assert found["b", 1] == broker.node.leader("b", 1).log.tail_bytes > 0
    part = folder.topics[0].partitions[0]
    assert (part.offset_lag, part.is_future_key) == (0, False)
    assert (folder.total_bytes, folder.usable_bytes) == (-1, -1)
    await broker.node.abort()


async def test_segments_count_as_well_as_what_is_not_in_segments_yet() -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 20)
    log = broker.node.leader("t", 0).log
    assert await log.tier()
    segments = sum(segment.bytes for segment in await log.manifest.segments())
    await produce(broker, "t", 1)
    assert sizes(await told(broker, None)) == {("t", 0): segments + log.tail_bytes}
    await broker.node.abort()


async def test_what_was_deleted_from_runs_does_not_count() -> None:
    broker = await start_broker({"t": 1})
    log = broker.node.leader("t", 0).log
    for _ in range(3):
        await produce(broker, "t", 20)
        assert await log.tier()
    assert await log.manifest.gather_runs(segments_min=3)
    (_, *kept) = await log.manifest.segments()
    await broker.node.leader("t", 0).move_start(kept[0].base)
    assert log.manifest.state.removed
    assert sizes(await told(broker, None)) == {("t", 0): sum(each.bytes for each in kept)}
    await broker.node.abort()


@pytest.mark.parametrize("version", [DESCRIBE_LOG_DIRS.min_version, HIGHEST])
async def test_only_what_was_asked_for_is_told_and_what_is_not_there_is_passed_over(
    version: int,
) -> None:
    broker = await start_broker({"a": 2, "b": 1})
    asked = [
        _Topic(topic="a", partitions=[1, 5]),
        _Topic(topic="none", partitions=[0]),
        _Topic(topic="a", partitions=[1]),
    ]
    assert list(sizes(await told(broker, asked, version))) == [("a", 1)]
    assert sizes(await told(broker, [], version)) == {}
    await broker.node.abort()


async def test_what_another_leads_is_told_by_the_other() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    assert sizes(await told(broker, None)) == {}
    await broker.node.abort()
