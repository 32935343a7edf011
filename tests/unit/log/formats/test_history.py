"""Folding batches into producers, epochs and aborts, and rebuilding a bundle from them."""

from __future__ import annotations

import struct

import pytest

from neve.errors import DamagedError
from neve.log.segment import bundle
from neve.log.segment.history import History, LeaderEpochs, Marker, ProducerState, decode_marker
from neve.log.segment.rebuild import rebuild
from neve.log.segment.sections import NO_OFFSET, AbortedTransaction, EpochStart
from neve.records.batch import BatchHeader, parse_header
from neve.records.reference import Record, build_batch
from support import format_samples as samples

SEGMENT, BUNDLE = samples.pair()
ABORT, COMMIT = Marker(True, 9), Marker(False, 9)


def header(offset: int, producer: int = 7, epoch: int = 0, **options: int | bool) -> BatchHeader:
    count = int(options.pop("count", 2))
    options.setdefault("base_sequence", 0)
    return parse_header(
        samples.batch(offset, count, producer_id=producer, producer_epoch=epoch, **options)
    )


def end(offset: int, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return parse_header(samples.marker(offset, producer, abort=True, epoch=epoch))


def test_the_last_five_batches_are_kept() -> None:
    state = ProducerState()
    for i in range(8):
        state.apply(header(10 * i, base_sequence=2 * i))
    entry = state.get(7)
    assert entry is not None
    assert [each.base_sequence for each in entry.recent] == [6, 8, 10, 12, 14]
    assert (entry.last_sequence, entry.last_offset, entry.last_timestamp) == (15, 71, 1001)


def test_sequences_start_again_behind_the_greatest() -> None:
    state = ProducerState()
    state.apply(header(0, base_sequence=2**31 - 1, count=3))
    entry = state.get(7)
    assert entry is not None
    assert entry.last_sequence == 1


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    state = ProducerState()
    state.apply(header(0, base_sequence=5))
    state.apply(header(2, epoch=1, base_sequence=0))
    entry = state.get(7)
    assert entry is not None
    assert (entry.epoch, [each.base_offset for each in entry.recent]) == (1, [2])


def test_batches_without_a_producer_leave_no_trace() -> None:
    state = ProducerState()
    state.apply(parse_header(samples.batch(0)))
    assert state.entries() == ()


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    state = ProducerState()
    state.apply(header(10, transactional=True))
    state.apply(header(12, transactional=True, base_sequence=2))
    assert state.first_unstable_offset == 10
    assert state.apply(end(14), COMMIT) is None
    entry = state.get(7)
    assert entry is not None
    assert (entry.transaction_first_offset, entry.coordinator_epoch) == (NO_OFFSET, 9)
    assert entry.last_sequence == 3
    assert state.first_unstable_offset is None


def test_an_abort_tells_what_was_stable_behind_it() -> None:
    state = ProducerState()
    state.apply(header(10, producer=1, transactional=True))
    state.apply(header(12, producer=2, transactional=True))
    assert state.apply(end(14, producer=1), ABORT) == AbortedTransaction(1, 10, 14, 12)
    assert state.apply(end(15, producer=2), ABORT) == AbortedTransaction(2, 12, 15, 16)
    assert state.apply(end(16, producer=2), ABORT) is None


def test_a_marker_of_a_new_epoch_ends_the_transaction_of_the_old_one() -> None:
    state = ProducerState()
    state.apply(header(10, transactional=True))
    aborted = state.apply(end(12, epoch=1), ABORT)
    assert aborted == AbortedTransaction(7, 10, 12, 13)
    entry = state.get(7)
    assert entry is not None
    assert (entry.epoch, entry.recent, entry.last_sequence) == (1, (), -1)


def test_a_state_taken_up_again_goes_on_the_same() -> None:
    first, second = [header(10, producer=2, transactional=True)], [end(20, 1), end(21, 2)]
    first.append(header(12, producer=1, transactional=True))
    straight = ProducerState()
    for each in first:
        straight.apply(each)
    resumed = ProducerState(straight.entries())
    assert resumed.first_unstable_offset == 10
    assert [resumed.apply(each, ABORT) for each in second] == [
        straight.apply(each, ABORT) for each in second
    ]
    assert resumed.entries() == straight.entries()


def test_a_removed_producer_is_unknown_and_its_transaction_gone() -> None:
    state = ProducerState()
    state.apply(header(10, transactional=True))
    state.apply(header(12, producer=8))
    state.retain({8, 9})
    assert [entry.producer_id for entry in state.entries()] == [8]
    assert (state.get(7), state.first_unstable_offset) == (None, None)


def test_markers_are_read_and_other_control_records_are_not_markers() -> None:
    assert decode_marker(samples.marker(5, 7, abort=True), "k") == ABORT
    assert decode_marker(samples.marker(5, 7, abort=False), "k") == COMMIT

    def control(key: bytes, value: bytes) -> bytes:
        return build_batch([Record(5, 0, key, value)], control=True, producer_id=7)

    assert decode_marker(control(struct.pack(">hh", 0, 2), b""), "k") is None
    for key, value in ((b"\0", b""), (struct.pack(">hh", 0, 0), b"\0")):
        with pytest.raises(DamagedError, match="cut short"):
            decode_marker(control(key, value), "k")


def test_epochs_begin_once_and_only_upwards() -> None:
    epochs = LeaderEpochs([EpochStart(2, 5)])
    for offset, epoch in ((10, 2), (12, 4), (14, 3), (16, 4), (18, -1), (20, 5)):
        epochs.apply(parse_header(samples.batch(offset, leader_epoch=epoch)))
    assert epochs.starts == ((2, 5), (4, 12), (5, 20))


def test_a_rebuilt_bundle_is_the_lost_one() -> None:
    rebuilt = rebuild(
        SEGMENT, "k", samples.INTERVAL, producers=(), epochs=(), state=samples.STATE_BEFORE
    )
    assert rebuilt.bundle == BUNDLE
    assert rebuilt.facts.last_offset == 108
    found = bundle.decode_bundle(rebuilt.bundle, "k")
    assert found.transactions == (AbortedTransaction(8, 104, 105, 106),)
    assert found.epochs == ((3, 100), (4, 102))
    assert {row.key: (row.value, row.timestamp) for row in found.state or ()} == {
        b"k0": (b"v106", 1500),
        b"k1": (b"v107", 1501),
        b"k2": (b"v108", 1502),
        b"state": (b"kept", 5),
    }
    assert [entry.producer_id for entry in found.producers or ()] == [7, 8]


def test_rebuilding_goes_on_from_what_was_before() -> None:
    before = History("k")
    for each in (samples.batch(50, producer_id=7, producer_epoch=0, base_sequence=90),):
        before.observe(parse_header(each), each)
    rebuilt = rebuild(
        SEGMENT,
        "k",
        100,
        producers=before.producers.entries(),
        epochs=[EpochStart(1, 0), EpochStart(3, 99)],
    )
    assert rebuilt.history.epochs.starts == ((1, 0), (3, 99), (4, 102))
    entry = rebuilt.history.producers.get(7)
    assert entry is not None
    assert [each.base_offset for each in entry.recent] == [50, 102, 106]


def test_a_damaged_segment_is_not_rebuilt_from() -> None:
    with pytest.raises(DamagedError, match=r"^the-key is damaged"):
        rebuild(SEGMENT[:50] + b"\xff" + SEGMENT[51:], "the-key", 1, producers=(), epochs=())
