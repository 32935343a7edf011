"""Batches on their way through a task: small ones are joined, none is lost where reading ends."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from neve.errors import DamagedError
from neve.lake.pipeline import work
from neve.lake.pipeline.work import joined


def batches(*counts: int) -> Iterator[pa.RecordBatch]:
    first = 0
    for count in counts:
        yield pa.record_batch({"offset": pa.array(range(first, first + count), pa.int64())})
        first += count


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "JOINED_BYTES", 80)


@pytest.mark.parametrize(
    ("counts", "becomes"),
    [
        ((), []),
        ((3,), [3]),
        ((3, 3, 3, 3, 3), [12, 3]),
        ((20, 20), [20, 20]),
        ((1, 20, 1), [21, 1]),
    ],
)
def test_small_batches_are_put_together(counts: tuple[int, ...], becomes: list[int]) -> None:
    found = list(joined(batches(*counts)))
    assert [batch.num_rows for batch in found] == becomes
    rows = [row for batch in found for row in batch.column("offset").to_pylist()]
    assert rows == list(range(sum(counts)))


def test_what_was_read_before_a_failure_comes_first() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(2, 2)
        raise DamagedError("orders-0", "a batch is damaged")

    found = joined(failing())
    assert next(found).num_rows == 4
    with pytest.raises(DamagedError):
        next(found)
