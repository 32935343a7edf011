"""Moving a log's start: by age, by size, because somebody asked."""

from __future__ import annotations

import msgspec
import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import InvalidError
from neve.log.log_start import move_start, start_by_age, start_by_size
from neve.log.manifest.records import Segment
from support.manifest_rows import segment
from support.node_world import TOPIC, send, small_settings, started, successor, values_of
from support.scripted_store import ScriptedStore, first, in_simulation

ROWS = [segment(0), segment(10), segment(20)]  # 100 bytes each, newest record's time = last offset


def timed(base: int, newest_ms: int, created_ms: int = 0) -> Segment:
    return msgspec.structs.replace(segment(base), max_timestamp=newest_ms, created_ms=created_ms)


# --- where it would start


@pytest.mark.parametrize(
    ("oldest_ms", "start"), [(0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (29, 20), (30, 30)]
)
def test_segments_with_no_record_young_enough_go(oldest_ms: int, start: int) -> None:
    assert start_by_age(ROWS, oldest_ms, 0) == start


def test_an_old_segment_behind_a_young_one_stays() -> None:
    assert start_by_age([timed(0, 5), timed(10, 50), timed(20, 5)], 10, 0) == 10


def test_records_without_a_time_are_as_old_as_their_segment() -> None:
    assert start_by_age([timed(0, -1, created_ms=50)], 10, 0) == 0
    assert start_by_age([timed(0, -1, created_ms=5)], 10, 0) == 10


@pytest.mark.parametrize(
    ("bytes_max", "tail_bytes", "start"),
    [(300, 0, 0), (299, 0, 0), (200, 0, 10), (200, 50, 10), (100, 99, 20), (100, 100, 30)],
)
def test_the_oldest_go_as_long_as_enough_stays(bytes_max: int, tail_bytes: int, start: int) -> None:
    assert start_by_size(ROWS, bytes_max, tail_bytes, 0) == start


def test_a_start_never_goes_back() -> None:
    assert start_by_age(ROWS, 10, 15) == 15
    assert start_by_size(ROWS, 200, 0, 15) == 15
    assert start_by_age([], 10, 15) == start_by_size([], 0, 0, 15) == 15


# --- moving it


async def tiered(store: ScriptedStore) -> Node:
    """A node with three segments of two batches of two records, and one batch in the tail."""
    node = await started(store, small_settings(segment_bytes=1 << 20))
    log = node.leader(TOPIC, 0).log
    for at in range(6):
        await send(node, [f"{2 * at}", f"{2 * at + 1}"], producer_id=at, sequence=0)
        if at % 2:
            assert await log.tier()
    await send(node, ["12", "13"], producer_id=6, sequence=0)
    return node


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 8, 11, 12, 13, 14])
def test_a_log_may_start_anywhere(start: int) -> None:
    """Inside a batch, inside a segment, at its end, in the tail, at the very end."""

    async def main() -> None:
        store = ScriptedStore()
        node = await tiered(store)
        log = node.leader(TOPIC, 0).log
        gone = await move_start(log.manifest, start, end=log.high_watermark)
        assert [row.base for row in gone] == [base for base in (0, 4, 8) if base + 4 <= start]
        assert await values_of(store) == [f"{at}" for at in range(start, 14)]
        assert len(await node.leader(TOPIC, 0).log.manifest.collect()) == max(
            0, 2 * len(gone) - (start >= 12)
        )
        assert await values_of(store) == [f"{at}" for at in range(start, 14)]
        await node.abort()
        new = await successor(store)
        known = [
            row.producer_id for row in new.leader(TOPIC, 0).log.tiered_history.producers.entries()
        ]
        assert known == list(range(6))
        assert await send(new, ["14"]) == 14
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_producers_outlive_every_segment_and_are_carried_on() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    log = node.leader(TOPIC, 0).log
    assert await log.tier()
    await move_start(log.manifest, 14, end=14)
    assert await log.manifest.segments() == []
    bundle = log.manifest.state.state_bundle
    assert bundle is not None
    await node.collect()
    assert bundle.key in store.listed()
    await node.abort()
    new = await successor(store)
    log = new.leader(TOPIC, 0).log
    assert len(log.tiered_history.producers.entries()) == 7
    await send(new, ["14"], producer_id=9, sequence=0)
    assert await log.tier()
    assert len(log.tiered_history.producers.entries()) == 8
    assert log.manifest.state.state_bundle is None
    await new.collect()
    assert bundle.key not in store.listed()
    epochs = [row.epoch for row in log.tiered_history.epochs.starts]
    assert epochs == [0, 1]
    await new.abort()


@in_simulation
async def test_a_lower_start_changes_nothing() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = node.leader(TOPIC, 0).log.manifest
    await move_start(manifest, 8, end=14)
    before = manifest.view.position
    assert await move_start(manifest, 8, end=14) == []
    assert await move_start(manifest, 3, end=14) == []
    assert manifest.view.position == before
    await node.abort()


@pytest.mark.parametrize("offset", [-1, 15])
def test_a_start_outside_the_log_is_refused(offset: int) -> None:
    async def main() -> None:
        node = await tiered(ScriptedStore())
        with pytest.raises(InvalidError, match=f"cannot start at {offset}"):
            await move_start(node.leader(TOPIC, 0).log.manifest, offset, end=14)
        await node.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_start_that_meets_another_change_is_worked_out_again() -> None:
    """The tail is tiered just before our number lands: the new segment goes too."""
    store = ScriptedStore()
    node = await tiered(store)
    log = node.leader(TOPIC, 0).log
    key = log.manifest.keys.number(log.manifest.view.position)

    async def tier() -> None:
        store.scripts.clear()
        other = await successor(store)
        assert await other.leader(TOPIC, 0).log.tier()
        await other.abort()

    store.when("create", key, first(tier))
    gone = await move_start(log.manifest, 14, end=14)
    assert [row.base for row in gone] == [0, 4, 8, 12]
    assert await values_of(store) == []
    await node.abort()


@in_simulation
async def test_a_segment_tiered_below_a_start_that_was_first_leaves_only_its_bundle() -> None:
    """Deleted records are uploaded, not listed: only what is known about producers is kept."""
    store = ScriptedStore()
    node = await tiered(store)
    log = node.leader(TOPIC, 0).log
    key = log.manifest.keys.number(log.manifest.view.position)

    async def delete() -> None:
        store.scripts.clear()
        other = await successor(store)
        manifest = other.leader(TOPIC, 0).log.manifest
        assert await move_start(manifest, 14, end=14)
        await other.abort()

    store.when("create", key, first(delete))
    assert await log.tier()
    assert await log.manifest.segments() == []
    assert log.manifest.state.loose == ()
    assert log.manifest.state.state_bundle is not None
    new = await successor(store, node_id=3)
    await new.collect()
    kept = [key for key in store.listed("topics/") if key.endswith((".kfs", ".index"))]
    assert kept == [log.manifest.state.state_bundle.key]
    assert len(new.leader(TOPIC, 0).log.tiered_history.producers.entries()) == 7
    await node.abort()
    await new.abort()
