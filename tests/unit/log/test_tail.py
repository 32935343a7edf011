"""One partition's tail, put together from streams and a manifest that was read after them."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.state import StreamPart
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Add, Skip, Start
from neve.log.manifest.state import ManifestState
from neve.log.tail import PartitionTail, assemble, read_streams
from neve.log.wal.checkpoint import PartitionEnd
from neve.log.wal.object import Slice
from neve.log.wal.reader import StreamTail, TailObject
from support.manifest_rows import folded, segment
from support.node_world import TOPIC, send, small_settings, started, topic_of
from support.scripted_store import ScriptedStore, in_simulation

TOPIC_ID = bytes(range(16))


def entry(base: int, last: int, epoch: int = 0, partition: int = 0) -> Slice:
    return Slice(TOPIC_ID, partition, epoch, base, last, 0, 100, 100, 0)


def number(at: int, *slices: Slice) -> TailObject:
    return TailObject(f"n{at}", at, slices, None)


def rollup(*slices: Slice) -> TailObject:
    return TailObject("rollup", None, slices, None)


def stream(
    incarnation: int, *objects: TailObject, checkpoint: int = 0, ends: tuple[int, int] | None = None
) -> StreamTail:
    """A tail; `ends` are the epoch and the next offset that its checkpoint keeps."""
    kept = {}
    if ends is not None:
        kept[TOPIC_ID, 0] = PartitionEnd(TOPIC_ID.hex(), 0, *ends)
    position = checkpoint + sum(item.number is not None for item in objects)
    return StreamTail(incarnation, checkpoint, position, True, objects, kept)


def part(incarnation: int, epoch: int = 0, start: int = 0, end: int | None = None) -> StreamPart:
    return StreamPart(epoch=epoch, incarnation=incarnation, start=start, end=end)


def of(
    parts: list[StreamPart], tails: list[StreamTail], manifest: ManifestState | None = None
) -> PartitionTail | None:
    by_stream = {tail.incarnation: tail for tail in tails}
    return assemble(TOPIC_ID, 0, parts, by_stream, manifest or ManifestState())


def offsets(tail: PartitionTail | None) -> list[tuple[int, int]]:
    assert tail is not None
    return [(row.entry.base_offset, row.entry.last_offset) for row in tail.slices]


def tiered(next_offset: int) -> ManifestState:
    return folded(Add((segment(0, next_offset - 1),)))


def skip(first: int, last: int) -> Skip:
    return Skip(first, last, 0, "lost")


# --- one stream


def test_no_stream_and_no_segment_is_an_empty_log() -> None:
    assert of([], []) == PartitionTail((), 0)
    assert of([], [], tiered(10)) == PartitionTail((), 10)


def test_slices_come_in_the_order_of_their_offsets() -> None:
    tail = of([part(1)], [stream(1, number(0, entry(0, 4)), number(1, entry(5, 5)))])
    assert offsets(tail) == [(0, 4), (5, 5)]
    assert tail is not None
    assert tail.end == 6


def test_what_is_tiered_is_left_out() -> None:
    found = stream(1, number(0, entry(0, 9)), number(1, entry(10, 19)))
    assert offsets(of([part(1)], [found], tiered(10))) == [(10, 19)]
    assert of([part(1)], [found], tiered(20)) == PartitionTail((), 20)
    assert of([part(1)], [found], tiered(30)) == PartitionTail((), 30)


def test_a_slice_that_is_tiered_in_part_stays() -> None:
    tail = of([part(1)], [stream(1, number(0, entry(0, 9)), number(1, entry(10, 19)))], tiered(15))
    assert offsets(tail) == [(10, 19)]


def test_other_partitions_and_topics_are_not_ours() -> None:
    other = Slice(bytes(16), 0, 0, 0, 9, 0, 100, 100, 0)
    tail = of([part(1)], [stream(1, number(0, entry(0, 3), entry(50, 59, partition=1), other))])
    assert offsets(tail) == [(0, 3)]


def test_a_gap_means_resolve_again() -> None:
    assert of([part(1)], [stream(1, number(0, entry(0, 4)), number(1, entry(6, 9)))]) is None
    assert of([part(1)], [stream(1, number(0, entry(5, 9)))], tiered(4)) is None


def test_a_shortfall_against_the_checkpoint_means_resolve_again() -> None:
    """The checkpoint says that offsets went up to 20: a manifest that ends at 10 is too old."""
    found = stream(1, checkpoint=5, ends=(0, 20))
    assert of([part(1)], [found], tiered(10)) is None
    assert of([part(1)], [found], tiered(20)) == PartitionTail((), 20)
    short = stream(1, rollup(entry(10, 14)), checkpoint=5, ends=(0, 20))
    assert of([part(1)], [short], tiered(10)) is None
    enough = stream(1, rollup(entry(10, 19)), checkpoint=5, ends=(0, 20))
    assert offsets(of([part(1)], [enough], tiered(10))) == [(10, 19)]


# --- several streams, epochs, ranges


def test_streams_follow_each_other() -> None:
    tails = [
        stream(4, number(0, entry(5, 9, epoch=1))),
        stream(2, number(0, entry(0, 2)), number(1, entry(3, 4))),
    ]
    tail = of([part(2, 0), part(4, 1)], tails)
    assert offsets(tail) == [(0, 2), (3, 4), (5, 9)]
    assert [row.incarnation for row in tail.slices] == [2, 2, 4]  # type: ignore[union-attr]


def test_a_slice_of_another_epoch_is_not_taken() -> None:
    found = stream(1, number(0, entry(0, 4, epoch=0)), number(1, entry(5, 9, epoch=3)))
    assert offsets(of([part(1, 0)], [found])) == [(0, 4)]
    assert of([part(1, 3)], [found]) is None
    assert offsets(of([part(1, 3)], [found], tiered(5))) == [(5, 9)]


def test_a_stream_that_is_led_from_twice_counts_for_each_epoch() -> None:
    home = stream(1, number(0, entry(0, 4, 0)), number(1, entry(8, 9, 2)), ends=(2, 10))
    away = stream(2, number(0, entry(5, 7, 1)))
    parts = [part(1, 0, end=1), part(2, 1), part(1, 2)]
    assert offsets(of(parts, [home, away])) == [(0, 4), (5, 7), (8, 9)]


def test_a_released_part_ends_before_its_number() -> None:
    found = stream(1, number(3, entry(0, 4)), number(4, entry(5, 9)), checkpoint=3)
    assert offsets(of([part(1, end=4)], [found])) == [(0, 4)]
    assert offsets(of([part(1, end=5)], [found])) == [(0, 4), (5, 9)]
    assert of([part(1, end=3)], [found]) == PartitionTail((), 0)


def test_a_part_begins_at_its_number() -> None:
    found = stream(1, number(0, entry(0, 4)), number(1, entry(5, 9)))
    assert offsets(of([part(1, start=1)], [found], tiered(5))) == [(5, 9)]


def test_a_roll_up_has_no_number_and_is_taken_by_its_epoch() -> None:
    found = stream(1, rollup(entry(0, 4, 0), entry(5, 9, 7)), checkpoint=8)
    assert offsets(of([part(1, 0, start=2, end=3)], [found])) == [(0, 4)]


def test_a_promise_of_another_epoch_is_not_this_part_s() -> None:
    found = stream(1, number(4, entry(0, 4)), checkpoint=4, ends=(9, 50))
    assert offsets(of([part(1, 0)], [found])) == [(0, 4)]


# --- where the log starts, what was given up


def test_a_tail_begins_at_the_tiered_offset_though_the_log_starts_above() -> None:
    """Whoever goes on tiering needs the deleted ones too: their producers are remembered."""
    manifest = folded(Start(7), base=tiered(5))
    found = stream(1, number(0, entry(5, 6)), number(1, entry(7, 9)))
    tail = of([part(1)], [found], manifest)
    assert offsets(tail) == [(5, 6), (7, 9)]


def test_what_is_missing_below_the_start_is_not_missed() -> None:
    manifest = folded(Start(8), base=tiered(5))
    found = stream(1, number(1, entry(7, 9)), ends=(0, 10))
    assert offsets(of([part(1)], [found], manifest)) == [(7, 9)]
    assert of([part(1)], [stream(1, number(1, entry(9, 9)))], manifest) is None
    assert of([part(1)], [stream(1, ends=(0, 8))], manifest) == PartitionTail((), 8)
    assert of([part(1)], [stream(1, ends=(0, 9))], manifest) is None


def test_a_log_whose_end_is_deleted_goes_on_behind_its_start() -> None:
    assert of([part(1)], [stream(1)], folded(Start(8), base=tiered(5))) == PartitionTail((), 8)


def test_what_was_given_up_for_lost_is_no_gap() -> None:
    found = [stream(1, number(0, entry(0, 4)), number(1, entry(8, 9)))]
    assert offsets(of([part(1)], found, folded(skip(5, 7)))) == [(0, 4), (8, 9)]
    assert offsets(of([part(1)], found, folded(skip(6, 7), skip(5, 5)))) == [(0, 4), (8, 9)]
    assert offsets(of([part(1)], found, folded(skip(2, 20)))) == [(0, 4), (8, 9)]
    assert of([part(1)], found, folded(skip(5, 6))) is None
    assert of([part(1)], found, folded(skip(6, 7))) is None


def test_what_was_given_up_at_the_end_counts_for_the_next_offset() -> None:
    found = [stream(1, number(0, entry(0, 4)), ends=(0, 8))]
    assert of([part(1)], found) is None
    tail = of([part(1)], found, folded(skip(5, 7)))
    assert offsets(tail) == [(0, 4)]
    assert tail is not None
    assert tail.end == 8


# --- the order of reading


@pytest.mark.parametrize("order", ["streams first", "manifest first"])
def test_the_manifest_is_read_after_the_streams(order: str) -> None:
    """A leader tiers, rolls up and trims between the two reads.

    In the right order the reader sees everything. In the other, what was tiered in between is in
    neither: the checkpoint's promise tells, so that nobody gives out those offsets again.
    """

    async def main() -> None:
        store = ScriptedStore()
        node = await started(store, small_settings(segment_bytes=1 << 20))
        for value in "abc":
            await send(node, [value])
        topic = topic_of(node)
        parts = topic.partitions[0].streams
        manifest = Manifest(store, manifest_keys(TOPIC, topic.id_bytes, 0))

        async def move_on() -> None:
            assert await node.leader(TOPIC, 0).log.tier()
            assert await node.rollups.roll_up()

        if order == "streams first":
            tails = await read_streams(store, [node.incarnation])
            await move_on()
            state = await manifest.refresh()
        else:
            state = await manifest.refresh()
            await move_on()
            tails = await read_streams(store, [node.incarnation])
        tail = assemble(topic.id_bytes, 0, parts, tails, state)
        if order == "streams first":
            assert tail == PartitionTail((), 3)
        else:
            assert tail is None
        await node.close()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_several_streams_are_read_side_by_side() -> None:
    store = ScriptedStore()
    nodes = [await started(store)]
    await send(nodes[0], ["a"])
    streams = [nodes[0].incarnation, 77, nodes[0].incarnation]
    tails = await read_streams(store, streams)
    assert sorted(tails) == [nodes[0].incarnation, 77]
    assert (tails[77].position, tails[77].sealed, tails[77].objects) == (0, False, ())
    assert (await ClusterLog(store).refresh()).streams() == [nodes[0].incarnation]
    await nodes[0].close()
