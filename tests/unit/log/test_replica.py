"""A follower's copy takes slices in their order only, and never goes back."""

from __future__ import annotations

import pytest

from neve.errors import FencedError
from neve.log.cached_slice import CachedObject
from neve.log.replica import ReplicaLog
from neve.log.tail import PartitionTail, TailSlice
from neve.log.wal.object import Slice
from neve.log.wal.reader import TailObject
from neve.store.memory import MemoryStore

ID = bytes(16)
EPOCH = 3


def entry(base: int, last: int, epoch: int = EPOCH) -> Slice:
    return Slice(ID, 0, epoch, base, last, 1_000, 0, 10, 0)


def cached(number: int, data: bytes | None = b"0123456789") -> CachedObject:
    return CachedObject(f"wal/{number}", 7, number, None if data is None else memoryview(data))


def tail(*entries: Slice) -> PartitionTail:
    rows = tuple(
        TailSlice(5, TailObject(f"old/{at}", at, (row,), None), row)
        for at, row in enumerate(entries)
    )
    return PartitionTail(rows, entries[-1].last_offset + 1 if entries else 0)


@pytest.fixture
def log() -> ReplicaLog:
    async def resolve(log: ReplicaLog) -> None:
        raise AssertionError(log.name)

    found = ReplicaLog(
        MemoryStore(), topic="t", topic_id=ID, partition=0, epoch=EPOCH, resolve=resolve
    )
    assert found.resolved(tail(entry(0, 4, 1), entry(5, 9)))
    return found


def bases(log: ReplicaLog) -> list[int]:
    return [row.entry.base_offset for row in log.tail]


def test_it_goes_on_with_the_next_slice_and_no_other(log: ReplicaLog) -> None:
    assert log.take(cached(1), entry(10, 12))
    assert (log.high_watermark, bases(log)) == (13, [0, 5, 10])
    assert not log.take(cached(2), entry(14, 15)), "13 is missing"
    assert not log.take(cached(2), entry(12, 15)), "12 would be there twice"
    assert not log.take(cached(2), entry(13, 15, EPOCH + 1)), "an epoch that it does not know"
    assert (log.high_watermark, bases(log)) == (13, [0, 5, 10])


def test_it_passes_over_what_it_has_and_what_an_earlier_epoch_wrote(log: ReplicaLog) -> None:
    assert log.take(cached(1), entry(5, 9))
    assert log.take(cached(1), entry(10, 12, EPOCH - 1))
    assert (log.high_watermark, bases(log)) == (10, [0, 5])


def test_only_slices_with_bytes_are_recent(log: ReplicaLog) -> None:
    assert log.take(cached(1, None), entry(10, 10))
    held = cached(2)
    assert log.take(held, entry(11, 11))
    assert [row.entry.base_offset for row in log.recent] == [11]
    held.drop()
    assert not log.recent
    assert [row.in_memory() for row in log.tail] == [None] * 4


def test_resolving_joins_what_was_read_with_what_came_meanwhile(log: ReplicaLog) -> None:
    assert log.take(cached(1), entry(10, 12))
    later = [(cached(1), entry(10, 12)), (cached(2), entry(13, 13))]
    assert log.resolved(tail(entry(5, 11)), later) is False, "10 to 12 begins inside"
    assert log.resolved(tail(entry(5, 9)), later)
    assert (log.high_watermark, bases(log)) == (14, [5, 10, 13])


def test_what_is_older_than_the_copy_changes_nothing(log: ReplicaLog) -> None:
    assert log.take(cached(1), entry(10, 12))
    assert not log.resolved(tail(entry(5, 9)))
    assert (log.high_watermark, bases(log)) == (13, [0, 5, 10])


def test_the_epochs_of_its_slices_are_known(log: ReplicaLog) -> None:
    assert [(row.epoch, row.start_offset) for row in log.epochs] == [(1, 0), (EPOCH, 5)]


def test_readers_are_notified_of_records_and_of_the_end(log: ReplicaLog) -> None:
    seen: list[int] = []

    def watcher(changed: ReplicaLog) -> None:
        seen.append(changed.high_watermark)

    log.watch(watcher)
    log.take(cached(1), entry(10, 12))
    log.take(cached(1), entry(10, 12))
    log.close(FencedError("moved"))
    log.close(FencedError("again"))
    assert seen == [13, 13]
    assert str(log.closed) == "moved"
