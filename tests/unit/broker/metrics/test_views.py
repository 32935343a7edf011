"""What a scrape shows of a real node, and how long it keeps the loop from others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from neve import runtime
from neve.broker.metrics import Metrics
from neve.broker.metrics.client_view import client_view
from neve.broker.metrics.kafka_view import kafka_view
from neve.broker.metrics.log_view import CommitLag, log_view
from neve.broker.metrics.private_gauges import tail_cached_bytes, uploads_of
from neve.broker.metrics.store_view import store_view
from neve.cluster.node import Node
from neve.coordinator.group_messages import GroupState, Identity
from neve.coordinator.groups import GroupSummary
from neve.serving.pages import View, process_view, scrape
from neve.settings import StoreSettings
from neve.store.memory import MemoryStore
from neve.store.url import Stack, stack
from support.group_world import World
from support.node_world import TOPIC, append, create_unled, send, small_settings

WITHOUT_PACE = StoreSettings(concurrency_max=4)


@asynccontextmanager
async def led(partitions: int) -> AsyncIterator[tuple[Node, Stack]]:
    around = stack(MemoryStore(), WITHOUT_PACE)
    node = await Node.start(
        around.store, small_settings(), node_id=7, probe=False, host="h", port=9092
    )
    await node.topics.create(TOPIC, partitions)
    try:
        yield node, around
    finally:
        await node.abort()


async def shown(*views: View) -> dict[str, Metric]:
    exposed = (await scrape(views)).decode()
    return {family.name: family for family in text_string_to_metric_families(exposed)}


def value(family: Metric, **labels: str) -> float:
    (found,) = [row.value for row in family.samples if row.labels == labels]
    return float(found)


async def test_a_leader_is_preferred_unless_a_client_has_chosen_another_one() -> None:
    async with led(2) as (node, around):
        other = await Node.start(around.store, small_settings(), node_id=8, host="h", port=9092)
        topic = node.cluster.state.topic(TOPIC)
        assert topic is not None
        await node.cluster.set_preferred({(topic.topic_id, 0): (8, 7)})
        families = await shown(partial(kafka_view, node))
        family = families["kafka_topic_partition_leader_is_preferred"]
        found = [value(family, partition=str(number), topic=TOPIC) for number in range(2)]
        assert found == [0, 1]
        await other.abort()


async def test_offsets_and_leaders_have_kafka_exporter_s_names_and_labels() -> None:
    async with led(2) as (node, _):
        await send(node, ["a", "b", "c"], partition=1)
        found = await shown(partial(kafka_view, node))
    at = {"topic": TOPIC, "partition": "1"}
    assert value(found["kafka_topic_partition_current_offset"], **at) == 3
    assert value(found["kafka_topic_partition_oldest_offset"], **at) == 0
    assert value(found["kafka_topic_partition_leader"], **at) == 7
    assert value(found["kafka_topic_partition_leader_is_preferred"], **at) == 1
    assert value(found["kafka_topic_partition_replicas"], **at) == 1
    assert value(found["kafka_topic_partition_in_sync_replica"], **at) == 1
    assert value(found["kafka_topic_partition_under_replicated_partition"], **at) == 0
    assert value(found["kafka_topic_partitions"], topic=TOPIC) == 2
    assert value(found["kafka_brokers"]) == 1
    assert value(found["kafka_broker_info"], id="7", address="h:9092") == 1


async def test_a_partition_without_a_leader_has_no_offsets_and_says_so() -> None:
    async with led(1) as (node, _):
        await create_unled(node, "unled", 1)
        found = await shown(partial(kafka_view, node))
    at = {"topic": "unled", "partition": "0"}
    assert value(found["kafka_topic_partition_leader"], **at) == -1
    assert value(found["kafka_topic_partition_in_sync_replica"], **at) == 0
    assert value(found["kafka_topic_partition_under_replicated_partition"], **at) == 1
    offsets = found["kafka_topic_partition_current_offset"].samples
    assert [row.labels["topic"] for row in offsets] == [TOPIC]


async def test_the_log_tells_how_far_it_is_behind() -> None:
    async with led(3) as (node, _):
        await send(node, ["a"])
        append(node, ["not committed yet"])
        found = await shown(partial(log_view, node, CommitLag()))
        assert value(found["neve_wal_buffered_bytes"]) == node.writer.buffered_bytes > 0
        assert value(found["neve_wal_committed_number"]) == 1
        assert value(found["neve_partitions_led"]) == 3
        untiered = sum(leader.log.tail_bytes for leader in node.led.partitions.values())
        assert value(found["neve_untiered_bytes"]) == untiered > 0
        assert 0 < value(found["neve_untiered_age_seconds"]) < 60


async def test_the_lag_grows_while_nothing_is_committed_and_ends_with_a_commit() -> None:
    async with led(1) as (node, _):
        lag = CommitLag()
        assert lag.seconds(node.writer) == 0
        append(node, ["waits"])
        assert lag.seconds(node.writer) == 0
        time.sleep(0.02)
        assert lag.seconds(node.writer) >= 0.02
        await node.writer.flush()
        assert lag.seconds(node.writer) == 0


async def test_the_store_s_requests_are_shown_by_operation_and_outcome() -> None:
    async with led(1) as (node, around):
        await send(node, ["a"])
        found = await shown(partial(store_view, around))
        creates = around.meter.calls("create", "ok")
        assert creates > 0
        row = {"operation": "create", "outcome": "ok"}
        assert value(found["neve_store_requests"], **row) == creates
        assert value(found["neve_store_sent_bytes"], operation="create") > 0
        assert value(found["neve_store_requests_max"]) == 4
        times = found["neve_store_request_seconds"].samples
        counts = [
            row.value
            for row in times
            if row.name.endswith("_bucket") and row.labels["operation"] == "create"
        ]
        assert counts == sorted(counts)
        assert counts[-1] == around.meter.calls("create")


async def test_requests_are_shown_by_names() -> None:
    metrics = Metrics()
    metrics.request_completed(0, 0.01)
    metrics.request_completed(0, 0.01, 3)
    metrics.request_completed(32_000, 0.01, 9_999)
    metrics.closed("idle")
    metrics.ack.add(0.2)
    found = await shown(partial(client_view, metrics))
    requests = found["neve_requests"]
    assert value(requests, api="Produce", error="NONE") == 1
    assert value(requests, api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert value(requests, api="32000", error="9999") == 1
    assert value(found["neve_connections_closed"], reason="idle") == 1
    sums = {row.name: row.value for row in found["neve_ack_seconds"].samples if not row.labels}
    assert sums == {"neve_ack_seconds_sum": 0.2, "neve_ack_seconds_count": 1}


async def test_what_components_keep_to_themselves_is_found() -> None:
    async with led(1) as (node, _):
        append(node, ["waits"])
        assert uploads_of(node.writer) == 0
        await asyncio.sleep(0)
        assert uploads_of(node.writer) <= 1
        await send(node, ["a"])
        assert tail_cached_bytes(node) > 0


async def test_groups_are_found_with_their_members_and_offsets() -> None:
    async with World() as world:
        member, generation = await world.member(group_id="busy")
        identity = Identity(member)
        about: dict[str, Any] = {"identity": identity, "generation": generation}
        await world.commit(("orders", 1, 5), ("orders", 3, 8), group_id="busy", **about)
        await world.commit(("orders", 0, 9), group_id="alone")
        assert sorted(world.groups.summaries()) == [
            GroupSummary("alone", GroupState.EMPTY, 0, {"orders": {0: 9}}),
            GroupSummary("busy", GroupState.STABLE, 1, {"orders": {1: 5, 3: 8}}),
        ]


async def test_the_process_is_measured() -> None:
    found = await shown(partial(process_view, "1.2.3"))
    assert value(found["process_resident_memory_bytes"]) > 1 << 20
    assert value(found["process_cpu_seconds"]) > 0
    assert found["neve_build_info"].samples[0].labels["version"] == "1.2.3"
    assert runtime.resident_bytes() > 1 << 20


async def test_two_thousand_partitions_leave_the_loop_its_turns() -> None:
    """A scrape takes a few milliseconds in all, and others run in between."""
    async with led(2_000) as (node, around):
        turns: list[float] = []

        async def others() -> None:
            while True:
                turns.append(time.thread_time())
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        await asyncio.sleep(0)
        views = [partial(kafka_view, node), partial(log_view, node, CommitLag())]
        started = time.thread_time()
        exposed = await scrape([*views, partial(store_view, around)])
        took = time.thread_time() - started
        other.cancel()
    assert exposed.count(b"\n") > 14_000
    longest = max(after - before for before, after in pairwise(turns))
    print(f"scrape {took * 1e3:.1f} ms, longest turn {longest * 1e3:.1f} ms, {len(turns)} turns")
    # Processor time, since other processes share the machine. Written in one go it would be `took`.
    assert len(turns) > 5
    assert longest < max(0.02, took / 2)
