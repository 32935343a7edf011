"""Which segments are merged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from neve.bucket.maintain.merge_groups import merge_groups
from neve.log.manifest.records import Segment
from neve.log.segment import kfs

EDGES = kfs.HEADER_BYTES + kfs.FOOTER_BYTES


def rows(sizes: Sequence[int], **about: object) -> list[Segment]:
    """Neighbours whose batches have these sizes, ten offsets each."""
    return [
        Segment(
            key=f"s{at}",
            base=10 * at,
            last=10 * at + 9,
            bytes=size + EDGES,
            records=10,
            min_timestamp=0,
            max_timestamp=0,
            created_ms=0,
            epoch=0,
            crc=0,
            **about,  # type: ignore[arg-type]
        )
        for at, size in enumerate(sizes)
    ]


def grouped(segments: Sequence[Segment], target: int, **about: object) -> list[list[str]]:
    groups = merge_groups(segments, target + EDGES, **about)  # type: ignore[arg-type]
    return [[row.key for row in group] for group in groups]


def test_neighbours_are_taken_together_as_far_as_they_fit() -> None:
    assert grouped(rows([100] * 5), 300) == [["s0", "s1", "s2"], ["s3", "s4"]]


def test_one_alone_is_not_rewritten() -> None:
    assert grouped(rows([100]), 300) == []
    assert grouped(rows([200, 200]), 300) == []


def test_what_is_large_already_parts_its_neighbours() -> None:
    assert grouped(rows([100, 100, 900, 100, 100]), 300) == [["s0", "s1"], ["s3", "s4"]]


def test_a_large_one_waits_until_half_as_many_bytes_have_come() -> None:
    assert grouped(rows([1000, 100, 100]), 2000) == [["s1", "s2"]]
    assert grouped(rows([1000, *[100] * 5]), 3000) == [["s0", *(f"s{at}" for at in range(1, 6))]]


def test_no_group_reaches_over_a_gap() -> None:
    segments = rows([100] * 4)
    segments[2:] = [
        msgspec.structs.replace(row, base=row.base + 5, last=row.last + 5) for row in segments[2:]
    ]
    assert grouped(segments, 1000) == [["s0", "s1"], ["s2", "s3"]]


def test_what_is_left_out_stays_alone() -> None:
    assert grouped(rows([100] * 5), 1000, left_out={"s2"}) == [["s0", "s1"], ["s3", "s4"]]


def test_imported_segments_are_merged_only_on_request() -> None:
    segments = rows([100] * 3, owned=False)
    assert grouped(segments, 1000) == []
    assert grouped(segments, 1000, imported=True) == [["s0", "s1", "s2"]]


def test_the_last_two_of_an_internal_partition_stay_as_they_are() -> None:
    assert grouped(rows([100] * 5), 1000, internal=True) == [["s0", "s1", "s2"]]


@given(st.lists(st.integers(61, 5000), max_size=40), st.integers(100, 10_000))
def test_groups_are_neighbours_that_fit_and_nothing_is_in_two(
    sizes: list[int], target: int
) -> None:
    segments = rows(sizes)
    groups = merge_groups(segments, target)
    seen = [row.key for group in groups for row in group]
    assert len(seen) == len(set(seen))
    assert seen == [row.key for row in segments if row.key in set(seen)]
    for group in groups:
        assert len(group) >= 2
        assert all(b.base == a.last + 1 for a, b in itertools.pairwise(group))
        assert EDGES + sum(row.bytes - EDGES for row in group) <= target
        largest = max(row.bytes for row in group)
        assert largest <= 2 * (sum(row.bytes for row in group) - largest)
