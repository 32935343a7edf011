"""What a partition loses with a WAL store, and how that is recorded."""

from __future__ import annotations

import msgspec
import pytest

from neve.bucket.abandon import (
    OFFSETS_LEAPT,
    Abandonment,
    PartitionLoss,
    StreamsLeft,
    loss_of_partition,
    skips_of,
)
from neve.bucket.verify.findings import PartitionRef
from neve.cli.abandon_wal import document, print_abandonment
from neve.cluster.state import StreamPart
from neve.cluster.stream_ends import StreamNotes
from neve.log.manifest.records import Skip
from neve.log.manifest.skips import is_skipped, past_skips
from neve.log.manifest.state import ManifestState
from neve.log.wal.checkpoint import PartitionEnd
from neve.log.wal.reader import StreamTail
from neve.log.wal.store_identity import WalStoreRef

TOPIC_ID = bytes(range(16))
PLACE = PartitionRef("t", TOPIC_ID.hex(), 0)
KEY = (TOPIC_ID, 0)
REF = WalStoreRef(name="r1", url="memory://r1", store_id="one")
NEXT = WalStoreRef(name="r1", url="memory://r1", store_id="two")


def part(epoch: int, incarnation: int) -> StreamPart:
    return StreamPart(epoch=epoch, incarnation=incarnation, start=0)


def note(epoch: int, offset: int) -> dict[tuple[bytes, int], PartitionEnd]:
    return {KEY: PartitionEnd(TOPIC_ID.hex(), 0, epoch, offset)}


def left(gone: set[int], **notes: StreamNotes) -> StreamsLeft:
    return StreamsLeft(gone, {}, {int(key.removeprefix("s")): row for key, row in notes.items()})


def loss(known: StreamsLeft, state: ManifestState, store_id: str = "one") -> PartitionLoss:
    parts = [part(0, 7)]
    return loss_of_partition(PLACE, parts, known, state, store_id)


def test_an_end_that_was_noted_is_known_and_a_begin_is_only_a_bound() -> None:
    state = ManifestState(next=5)
    assert loss(left({7}), state) == PartitionLoss("t", 0, (), 5)
    ended = left({7}, s7=StreamNotes({}, note(0, 9)))
    assert loss(ended, state) == PartitionLoss("t", 0, ((5, 9),), None)
    begun = left({7}, s7=StreamNotes(note(0, 9), {}))
    assert loss(begun, state) == PartitionLoss("t", 0, ((5, 9),), 9)


def test_a_later_leader_that_noted_its_begin_shows_the_end() -> None:
    known = left({7}, s8=StreamNotes(note(1, 9), {}))
    known = known._replace(tails={8: StreamTail(8, 0, 0, sealed=False, objects=())})
    parts = [part(0, 7), part(1, 8)]
    found = loss_of_partition(PLACE, parts, known, ManifestState(next=5), "one")
    assert found == PartitionLoss("t", 0, ((5, 9),), None)


def test_a_run_that_was_interrupted_lists_the_same_and_leaps_once() -> None:
    state = ManifestState(next=5)
    known = left({7}, s7=StreamNotes(note(0, 9), {}))
    planned = loss(known, state)
    written = skips_of(planned, state, REF, at_ms=1)
    assert [(row.first, row.last, row.end_known) for row in written] == [
        (5, 8, True),
        (9, 8 + OFFSETS_LEAPT, False),
    ]
    after = msgspec.structs.replace(state, skips=tuple(written))
    assert loss(known, after) == planned
    assert skips_of(planned, after, REF, at_ms=2) == []
    assert past_skips(after.skips, 5) == planned.continues_at == 9 + OFFSETS_LEAPT
    # Nor does it change what was recorded if the end becomes known in between.
    ended = left({7}, s7=StreamNotes(note(0, 9), note(0, 12)))
    assert loss(ended, after) == planned
    # The next store that is lost is another loss, behind the first leap.
    second = loss(left({7}), after, "two")
    assert second == PartitionLoss("t", 0, (), 9 + OFFSETS_LEAPT)
    (leap,) = skips_of(second, after, NEXT, at_ms=3)
    assert is_skipped((*after.skips, leap), 5, 9 + 2 * OFFSETS_LEAPT)


def test_what_was_tiered_meanwhile_is_not_leapt_over() -> None:
    (leap,) = skips_of(PartitionLoss("t", 0, (), 5), ManifestState(next=8), REF, at_ms=1)
    assert (leap.first, leap.last) == (8, 7 + OFFSETS_LEAPT)


def test_other_skips_are_stored_as_before() -> None:
    plain = Skip(1, 2, 3, "why")
    assert msgspec.json.encode(plain) == (
        b'{"type":"skip","first":1,"last":2,"at_ms":3,"reason":"why"}'
    )
    leap = Skip(1, 2, 3, "why", end_known=False, wal_store="one")
    assert msgspec.json.decode(msgspec.json.encode(leap), type=Skip) == leap


def test_the_command_names_both_ends_of_a_leap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Abandonment(REF, (7,), (), (PartitionLoss("t", 0, ((5, 9),), 9),))
    print_abandonment(found)
    behind = 9 + OFFSETS_LEAPT
    said = f"offsets 5 to 8, from offset 9 on, end not known; the log continues at {behind}"
    assert said in capsys.readouterr().out
    assert document(found)["partitions"][0]["lost"] == [
        {"first": 5, "end": 9},
        {"first": 9, "end": None, "continues_at": behind},
    ]
