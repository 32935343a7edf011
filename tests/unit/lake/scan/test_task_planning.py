"""From plans to tasks: every planned offset once, large ranges, small ones together."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from neve.bucket.planning import PartitionPlan, PlannedSpan
from neve.lake.scan.task_planning import pack_tasks, plan_tasks
from neve.lake.scan.tasks import ScanRange, StoreRef

Stretch = tuple[int, int, int]  # offsets passed over before it, offsets, bytes


def planned(stretches: list[Stretch], partition: int = 0) -> PartitionPlan:
    spans, due = [], 0
    for gap, offsets, size in stretches:
        due += gap
        spans.append(PlannedSpan(due, due + offsets, size, 0, 1, tail=False))
        due += offsets
    return PartitionPlan("t", "id", partition, 0, due, 0, due, tuple(spans))


def offsets_of(ranges: list[ScanRange]) -> list[tuple[int, int]]:
    return [(each.partition, offset) for each in ranges for offset in range(each.first, each.end)]


STRETCHES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(0, 500)), max_size=6
)


@given(st.lists(STRETCHES, max_size=3), st.integers(1, 300), st.integers(0, 12))
def test_every_planned_offset_is_in_one_task(
    partitions: list[list[Stretch]], most: int, least: int
) -> None:
    plans = [planned(each, number) for number, each in enumerate(partitions)]
    ranges = plan_tasks(plans, max_bytes_per_task=most, min_tasks=least)
    wanted = [
        (plan.partition, offset)
        for plan in plans
        for span in plan.spans
        for offset in range(span.first, span.end)
    ]
    assert offsets_of(ranges) == wanted
    assert all(each.first < each.end for each in ranges)
    assert sum(each.bytes for each in ranges) == sum(p.bytes for plan in plans for p in plan.spans)
    packed = pack_tasks(ranges, pack_bytes=100, min_tasks=least)
    assert [each for task in packed for each in task] == ranges
    assert all(packed)


def test_a_large_partition_becomes_several_tasks_of_about_one_size() -> None:
    ranges = plan_tasks([planned([(0, 100, 1000), (0, 100, 1000)])], max_bytes_per_task=500)
    assert [(each.first, each.end, each.bytes) for each in ranges] == [
        (0, 50, 500),
        (50, 100, 500),
        (100, 150, 500),
        (150, 200, 500),
    ]


def test_no_task_reads_what_was_pruned() -> None:
    ranges = plan_tasks([planned([(0, 10, 5), (20, 10, 5)])])
    assert [(each.first, each.end) for each in ranges] == [(0, 10), (30, 40)]


def test_fewer_tasks_than_asked_for_are_cut_further() -> None:
    plans = [planned([(0, 100, 1000)]), planned([(0, 100, 1000)], 1)]
    assert len(plan_tasks(plans)) == 2
    ranges = plan_tasks(plans, min_tasks=10)
    assert len(ranges) >= 10
    assert len(pack_tasks(ranges, min_tasks=10)) >= 10


def test_small_partitions_share_a_task() -> None:
    ranges = plan_tasks([planned([(0, 5, 10)], number) for number in range(100)])
    packed = pack_tasks(ranges, pack_bytes=250)
    assert [len(task) for task in packed] == [25, 25, 25, 25]


def test_times_travel_with_tasks_and_tasks_travel_to_workers() -> None:
    (task,) = plan_tasks([planned([(0, 5, 10)])], from_timestamp=3, to_timestamp=4)
    assert (task.from_timestamp, task.to_timestamp) == (3, 4)
    assert pickle.loads(pickle.dumps(task)) == task
    store = StoreRef("/b", "kafscale", (("prefetch.window", "3"),))
    assert pickle.loads(pickle.dumps(store)) == store
