from __future__ import annotations

from neve.bucket.planning import PartitionPlan, PlannedSpan
from neve.errors import DamagedError
from neve.lake.pipeline.micro_batches import MicroBatch, combine_results, next_micro_batch
from neve.lake.pipeline.range_task import RangeResult
from neve.lake.scan.tasks import ScanRange

SPAN_BYTES = 100


def plan(partition: int, first: int, stop: int, **more: object) -> PartitionPlan:
    """A partition in spans of ten offsets, which have a hundred bytes each."""
    spans = tuple(
        PlannedSpan(at, min(at + 10, stop), SPAN_BYTES, 0, 0, tail=False)
        for at in range(first, stop, 10)
    )
    return PartitionPlan("t", "id", partition, first, stop, first, stop, spans, **more)  # type: ignore[arg-type]


def chosen(batch: MicroBatch) -> list[tuple[int, int, int]]:
    return [(each.partition, each.first, each.end) for each in batch.ranges]


def done(task: ScanRange, end: int | None = None, **more: object) -> RangeResult:
    return RangeResult(task, task.end if end is None else end, rows=1, **more)  # type: ignore[arg-type]


def test_a_micro_batch_takes_from_every_partition_in_turn() -> None:
    plans = [plan(0, 0, 30), plan(1, 5, 25)]
    batch = next_micro_batch(plans, batch_bytes=3 * SPAN_BYTES, task_bytes=SPAN_BYTES)
    assert chosen(batch) == [(0, 0, 10), (0, 10, 20), (1, 5, 15)]
    assert batch.whole == frozenset()
    batch = next_micro_batch(plans, batch_bytes=10_000, task_bytes=SPAN_BYTES)
    assert batch.whole == {0, 1}
    assert sum(each.bytes for each in batch.ranges) == 5 * SPAN_BYTES


def test_one_range_is_taken_however_large() -> None:
    batch = next_micro_batch([plan(0, 0, 100)], batch_bytes=1, task_bytes=10_000)
    assert chosen(batch) == [(0, 0, 100)]


def test_what_was_read_whole_is_committed_to_its_end() -> None:
    plans = [plan(0, 0, 30), plan(1, 7, 7)]
    batch = next_micro_batch(plans, batch_bytes=10_000, task_bytes=SPAN_BYTES)
    found = combine_results(batch, [done(task) for task in reversed(batch.ranges)])
    assert found.new["id"].offsets == {0: 30, 1: 7}
    assert (found.rows, found.failures) == (3, ())


def test_offsets_that_nobody_has_at_the_end_are_passed() -> None:
    skipped = PartitionPlan("t", "id", 0, 0, 20, 0, 20, plan(0, 0, 10).spans)
    batch = next_micro_batch([skipped], batch_bytes=10_000, task_bytes=SPAN_BYTES)
    assert combine_results(batch, [done(batch.ranges[0])]).new["id"].offsets == {0: 20}


def test_nothing_behind_a_range_that_ended_early_is_committed() -> None:
    batch = next_micro_batch(
        [plan(0, 0, 30), plan(1, 0, 10)], batch_bytes=10_000, task_bytes=SPAN_BYTES
    )
    first, second, third, other = batch.ranges
    results = [done(third), done(second, 14, failure="a damaged batch"), done(first), done(other)]
    found = combine_results(batch, results)
    assert found.new["id"].offsets == {0: 14, 1: 10}
    assert found.failures == ("t-0: a damaged batch",)
    assert found.rows == 3  # those of the third range are left for later


def test_a_part_is_committed_to_where_it_was_read() -> None:
    batch = next_micro_batch([plan(0, 0, 30)], batch_bytes=2 * SPAN_BYTES, task_bytes=SPAN_BYTES)
    assert combine_results(batch, [done(task) for task in batch.ranges]).new["id"].offsets == {
        0: 20
    }


def test_a_partition_that_could_not_be_seen_stays_where_it_is() -> None:
    unseen = PartitionPlan("t", "id", 0, 0, 0, 0, 0, failure=DamagedError("wal/x", "torn"))
    batch = next_micro_batch([unseen, plan(1, 0, 10)], batch_bytes=10_000, task_bytes=SPAN_BYTES)
    found = combine_results(batch, [done(task) for task in batch.ranges])
    assert found.new["id"].offsets == {1: 10}
    assert "torn" in found.failures[0]


def test_of_a_doubtful_partition_only_one_range_is_tried() -> None:
    plans = [plan(0, 0, 30), plan(1, 0, 30)]
    batch = next_micro_batch(plans, batch_bytes=10_000, task_bytes=SPAN_BYTES, doubtful={0})
    assert chosen(batch) == [(0, 0, 10), (1, 0, 10), (1, 10, 20), (1, 20, 30)]
    assert batch.whole == {1}
    results = [done(task, 0 if task.partition == 0 else None) for task in batch.ranges]
    found = combine_results(batch, results)
    assert (found.new["id"].offsets, found.stuck) == ({0: 0, 1: 30}, {0})
    alone = next_micro_batch(plans[:1], batch_bytes=10_000, task_bytes=SPAN_BYTES, doubtful={0})
    assert chosen(alone) == [(0, 0, 10)]
