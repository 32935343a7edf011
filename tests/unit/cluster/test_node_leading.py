"""A node that leads partitions, and two processes of one node at once."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.log import NoTopicError
from neve.cluster.node import Node
from neve.errors import (
    FencedError,
)
from support.node_world import (
    TOPIC,
    append,
    send,
    small_settings,
    started,
    successor,
    take_over,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation

# --- leading


@in_simulation
async def test_offsets_follow_each_other_and_the_high_watermark_the_commits(
    store: ScriptedStore,
) -> None:
    node = await started(store, partitions=2)
    log = node.leader(TOPIC, 0).log
    assert append(node, ["a", "b"]).base_offset == 0
    last = append(node, ["c"])
    assert (last.base_offset, last.last_offset, log.next_offset, log.high_watermark) == (2, 2, 3, 0)
    assert append(node, ["x"], 1).base_offset == 0
    await node.writer.flush()
    assert log.high_watermark == 3
    assert await values_of(store) == ["a", "b", "c"]
    assert await values_of(store, 1) == ["x"]
    await node.close()


@in_simulation
async def test_what_is_not_led_is_refused(store: ScriptedStore) -> None:
    node = await started(store)
    assert node.leader_of(bytes(16), 0) is None
    with pytest.raises(FencedError, match="does not lead"):
        node.leader(TOPIC, 1)
    with pytest.raises(NoTopicError, match="'other'"):
        await take_over(node, ["other"])
    await node.close()


@in_simulation
async def test_leading_twice_at_once_recovers_a_partition_once(store: ScriptedStore) -> None:
    """Two logs of one partition would give out the same offsets."""
    node = await Node.start(store, small_settings(), node_id=1)
    await node.cluster.create_topic(TOPIC, 1)

    async def lead_and_send(value: str) -> int:
        await take_over(node, [TOPIC])
        return await send(node, [value])

    offsets = await runtime.gather(*(lead_and_send(value) for value in "abc"))
    assert sorted(offsets) == [0, 1, 2]
    assert sorted(await values_of(store)) == ["a", "b", "c"]
    await node.close()


@in_simulation
async def test_leading_again_keeps_what_is_led(store: ScriptedStore) -> None:
    node = await started(store)
    await send(node, ["a"])
    log = node.leader(TOPIC, 0).log
    await take_over(node)
    assert node.leader(TOPIC, 0).log is log
    assert await send(node, ["b"]) == 1
    await node.close()


@in_simulation
async def test_a_fenced_node_does_not_take_partitions_that_it_cannot_write(
    store: ScriptedStore,
) -> None:
    old = await started(store)
    new = await successor(store)
    with pytest.raises(FencedError):
        await send(old, ["a"])
    before = (await new.cluster.refresh()).topics
    with pytest.raises(FencedError):
        await take_over(old, [TOPIC])
    assert (await new.cluster.refresh()).topics == before
    assert await send(new, ["b"]) == 0
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_partition_created_later_is_led_with_the_rest(store: ScriptedStore) -> None:
    node = await started(store)
    await node.cluster.create_topic("later", 2)
    await take_over(node)
    assert len(node.led.partitions) == 3
    await node.close()


# --- two at once


@in_simulation
async def test_the_old_leader_is_fenced_and_what_it_acknowledged_survives(
    store: ScriptedStore,
) -> None:
    old = await started(store)
    acknowledged = [value for value in "abcd" if await send(old, [value]) >= 0]
    new = await successor(store)
    assert new.leader(TOPIC, 0).log.next_offset == 4
    with pytest.raises(FencedError):
        await send(old, ["lost"])
    assert old.led.partitions == {}
    with pytest.raises(FencedError):
        append(old, ["lost"])
    assert not await old.writer.still_leading()
    assert await new.writer.still_leading()
    assert await send(new, ["e"]) == 4
    assert await values_of(store) == [*acknowledged, "e"]
    await old.abort()
    await new.abort()


@in_simulation
async def test_an_old_leader_may_still_tier_what_was_committed(store: ScriptedStore) -> None:
    """Its records are committed; the new leader finds them tiered and goes on behind them."""
    settings = small_settings(segment_ms=1)
    old = await started(store, settings)
    for value in "abcd":
        await send(old, [value], producer_id=5, sequence=ord(value) - ord("a"))
    new = await successor(store, settings)
    await runtime.sleep(1)
    await old.run_due_work()
    assert old.leader(TOPIC, 0).log.tiered_offset == 4
    await send(new, ["e"], producer_id=6, sequence=0)
    await new.run_due_work()
    log = new.leader(TOPIC, 0).log
    await runtime.sleep(1)
    await new.run_due_work()
    assert log.tiered_offset == 5
    assert await values_of(store) == list("abcde")
    known = {row.producer_id: row.last_sequence for row in log.tiered_history.producers.entries()}
    assert known == {5: 3, 6: 0}
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_history_that_others_moved_on_is_read_again_before_it_is_built_on(
    store: ScriptedStore,
) -> None:
    """The new leader learns of the old one's segment by collecting, not by tiering."""
    settings = small_settings(segment_ms=1)
    old = await started(store, settings)
    for value in "abcd":
        await send(old, [value], producer_id=5, sequence=ord(value) - ord("a"))
    new = await successor(store, settings)
    await runtime.sleep(1)
    await old.run_due_work()
    await send(new, ["e"], producer_id=6, sequence=0)
    await new.collect()
    log = new.leader(TOPIC, 0).log
    assert log.tiered_offset == 4
    await runtime.sleep(1)
    await new.run_due_work()
    assert log.tiered_offset == 5
    third = await successor(store, settings, node_id=3)
    known = third.leader(TOPIC, 0).log.tiered_history.producers.entries()
    assert {row.producer_id: row.last_sequence for row in known} == {5: 3, 6: 0}
    for node in (old, new, third):
        await node.abort()
