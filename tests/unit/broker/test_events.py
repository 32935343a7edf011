"""What a broker writes of its own life: each event once, with fields."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from neve.cluster.broker_config import set_broker_configs
from neve.cluster.records import ALL_NODES
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.leave_group import LEAVE_GROUP
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.records.reference import Record, build_batch
from neve.store.memory import MemoryBucket, MemoryStore
from support.wire import Wire, running_broker


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    """Level, kind and fields of what was written since this was last asked."""
    found = [
        (row.levelname, row.msg, row.fields) for row in caplog.records if hasattr(row, "fields")
    ]
    caplog.clear()
    return found


async def test_topics_and_configs(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as broker:
        caplog.set_level(logging.INFO, "neve")
        node = broker.node
        topic = await node.topics.create("orders", 2, {"retention.ms": "1000"})
        await node.topics.add_partitions("orders", 3)
        await node.topics.set_configs("orders", {"segment.ms": "5"}, ["retention.ms"])
        await set_broker_configs(node.cluster, ALL_NODES, {"num.partitions": "4"})
        await node.topics.delete("orders")
    named = {"topic": "orders", "topic_id": topic.topic_id}
    assert events(caplog) == [
        ("INFO", "topic created", {**named, "partitions": 2, "configs": {"retention.ms": "1000"}}),
        ("INFO", "partitions added", {"topic": "orders", "partitions": 3}),
        (
            "INFO",
            "topic configs changed",
            {"topic": "orders", "configs": {"segment.ms": "5"}, "removed": ["retention.ms"]},
        ),
        (
            "INFO",
            "broker configs changed",
            {"node": ALL_NODES, "configs": {"num.partitions": "4"}, "removed": []},
        ),
        ("INFO", "topic deleted", named),
    ]


async def test_recovery(caplog: pytest.LogCaptureFixture) -> None:
    bucket = MemoryBucket()
    batch = build_batch([Record(0, 1_000, None, b"x" * 100)])
    async with running_broker(MemoryStore(bucket)) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("orders", 3)
        await wire.produce("orders", batch)
    caplog.set_level(logging.INFO, "neve")
    caplog.clear()
    async with running_broker(MemoryStore(bucket)):
        pass
    recovered, ready = events(caplog)
    assert (recovered[:2], ready[:2]) == (
        ("INFO", "partitions recovered"),
        ("INFO", "broker ready"),
    )
    assert 0 <= recovered[2].pop("seconds") <= ready[2].pop("seconds")
    assert recovered[2] == {
        "partitions": 3,
        "failed": 0,
        "tail_bytes": len(batch),
        "sealed_streams": 1,
    }
    assert ready[2].pop("incarnation") > 0
    assert ready[2] == {"topics": 1, "partitions": 3, "groups": 0}


async def joined(wire: Wire) -> Any:
    request = JOIN_GROUP.Request
    asked = request(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[request.Protocol(name="range", metadata=b"")],
    )
    while (answer := await wire.ask(JOIN_GROUP, 2, asked)).error_code:
        await wire.ask(FIND_COORDINATOR, 0, FIND_COORDINATOR.Request(key="g"))
    return answer


async def test_groups(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.offsets_topic.ensure()
        caplog.set_level(logging.DEBUG, "neve.coordinator")
        member_id = (await joined(wire)).member_id
        mine = SYNC_GROUP.Request.Assignment(member_id=member_id, assignment=b"all")
        sync = {"group_id": "g", "generation_id": 1, "member_id": member_id, "assignments": [mine]}
        await wire.ask(SYNC_GROUP, 0, SYNC_GROUP.Request(**sync))
        leave = LEAVE_GROUP.Request(group_id="g", member_id=member_id)
        await wire.ask(LEAVE_GROUP, 0, leave)
        await broker.groups.delete_group("g")
    rows = events(caplog)
    assert [row[:2] for row in rows] == [
        ("DEBUG", "group rebalances"),
        ("DEBUG", "member joined"),
        ("INFO", "group rebalanced"),
        ("INFO", "group has no members"),
        ("DEBUG", "members left"),
        ("INFO", "group deleted"),
    ]
    assert rows[1][2] == {"group": "g", "member": member_id, "client": "test"}
    about = {"group": "g", "generation": 1, "members": 1, "protocol": "range"}
    assert rows[2][2] == about
    assert rows[3][2] == {**about, "generation": 2, "members": 0, "protocol": None}
    assert rows[4][2] == {"group": "g", "members": 1}
    assert rows[5][2] == {"group": "g", "offsets": 0}
