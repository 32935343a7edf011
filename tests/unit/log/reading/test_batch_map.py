"""Finding batches in bytes that hold many."""

from __future__ import annotations

import random
from collections import deque

import pytest

from neve.errors import DamagedError
from neve.log.cached_slice import CachedObject, CachedSlice
from neve.log.reading.leader import batch_map
from neve.log.reading.leader.batch_map import BatchMap
from neve.log.reading.leader.recent import index_of, row_holding
from neve.log.wal.object import Slice
from neve.records.reference import Record, build_batch
from support.scripted_store import in_simulation


def batches(count: int, seed: int, *, gaps: bool = False) -> list[tuple[int, int, bytes]]:
    chance = random.Random(seed)
    found, base = [], 1_000
    for _ in range(count):
        records = chance.randint(1, 4)
        rows = [Record(base + at, 1, None, b"v" * chance.randint(0, 300)) for at in range(records)]
        found.append((base, base + records - 1, build_batch(rows)))
        base += records + (chance.randint(0, 3) if gaps else 0)
    return found


@pytest.mark.parametrize("gaps", [False, True])
def test_any_offset_and_room_give_what_a_walk_gives(
    gaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_map, "NOTED_EVERY_BYTES", 700)
    monkeypatch.setattr(batch_map, "CUTS_MAX", 4)
    rows = batches(60, 3, gaps=gaps)
    data = memoryview(b"".join(row[2] for row in rows))
    chance = random.Random(5)
    found = BatchMap(rows[0][0], "key")
    for _ in range(3_000):
        offset = chance.randint(rows[0][0], rows[-1][1] + 2)
        room = chance.choice([-5_000, 0, 1, 200, 1_000, 5_000, 1 << 20])
        limit = chance.choice([None, None, chance.randint(offset + 1, rows[-1][1] + 5)])
        at_least_one = chance.random() < 0.5
        wanted = [row for row in rows if row[1] >= offset and (limit is None or row[0] < limit)]
        taken: list[tuple[int, int, bytes]] = []
        for row in wanted:
            size = sum(len(each[2]) for each in taken) + len(row[2])
            if size > room and (taken or not at_least_one):
                break
            taken.append(row)
        cut = found.cut(data, offset, room, at_least_one=at_least_one, limit=limit)
        if not taken:
            assert cut is None
            continue
        assert cut is not None
        assert bytes(data[cut.start : cut.end]) == b"".join(row[2] for row in taken)
        assert (cut.first_offset, cut.next_offset) == (taken[0][0], taken[-1][1] + 1)


def test_a_search_does_not_walk_from_the_start_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = batches(2_000, 1)
    data = memoryview(b"".join(row[2] for row in rows))
    found = BatchMap(rows[0][0], "key")
    found.cut(data, rows[-1][0], 1, at_least_one=True)
    steps = 0
    step = BatchMap._step

    def counted(self: BatchMap, view: memoryview, position: int) -> tuple[int, int, int]:
        nonlocal steps
        steps += 1
        return step(self, view, position)

    monkeypatch.setattr(BatchMap, "_step", counted)
    cut = found.cut(data, rows[1_000][0], 100_000, at_least_one=True)
    assert steps < 200
    steps = 0
    assert cut is not None
    found.cut(data, cut.next_offset, 1, at_least_one=True)
    assert steps <= 3, "it goes on where it cut"


def test_bytes_that_are_no_batches_are_damage_and_no_endless_walk() -> None:
    for data in (bytes(500), b"\xff" * 500, bytes(20)):
        with pytest.raises(DamagedError, match="key"):
            BatchMap(0, "key").cut(memoryview(data), 5, 1_000, at_least_one=True)


def test_the_slice_of_an_offset_is_found_wherever_it_is() -> None:
    held = CachedObject("key", 1, 0, None)
    for count in (1, 2, 3, 10, 200):
        rows = deque(
            CachedSlice(held, Slice(b"", 0, 0, at * 10, at * 10 + 7, 0, 0, 0, 0), 0.0)
            for at in range(count)
        )
        for offset in range(-1, count * 10 + 2):
            assert index_of(rows, offset) == min(offset // 10, count - 1)
            row = row_holding(rows, offset)
            assert (row is not None) == (0 <= offset < count * 10 and offset % 10 <= 7)
    assert index_of(deque(), 0) == -1


@in_simulation
async def test_a_budget_is_given_out_in_order_and_cancelling_loses_nothing() -> None:
    from neve import runtime

    asked: list[int] = []
    budget = runtime.MemoryShare("test", 10, asked.append)
    assert budget.try_take(8)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)

    tasks = [
        runtime.spawn(take(name, size)) for name, size in (("a", 5), ("b", 1), ("c", 30), ("d", 1))
    ]
    await runtime.sleep(0)
    assert (order, budget.waiting) == ([], 4)
    assert asked[0] == 3
    assert not budget.try_take(1), "who waits comes first"
    tasks[0].cancel()
    await runtime.sleep(0)
    await runtime.sleep(0)
    assert order == ["b"]
    budget.give_back(8)
    budget.give_back(1)
    await runtime.sleep(0)
    assert order == ["b", "c"], "one that is larger than all passes alone"
    budget.give_back(30)
    await runtime.sleep(0)
    assert order == ["b", "c", "d"]
    budget.give_back(1)
    assert budget.used == 0
