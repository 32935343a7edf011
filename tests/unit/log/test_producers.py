"""What a partition knows of idempotent producers: new, duplicate, out of order, fenced."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import ClosedError, InvalidError
from neve.log.producers import (
    PRODUCER_BYTES,
    Duplicate,
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerMemory,
    Producers,
)
from neve.log.segment.history import History
from neve.log.wal.pending import Commit
from neve.records.batch import BatchHeader, parse_header
from neve.records.reference import Record, build_batch
from neve.settings import ProducerSettings
from support.scripted_store import in_simulation

LAST = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    batch = build_batch(
        [Record(at, 1_000 + at, None, b"v") for at in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return parse_header(batch)


class Log:
    """Appends what is new, as a partition does."""

    def __init__(self, producers: Producers | None = None, *, at: int = 0) -> None:
        self.producers = Producers() if producers is None else producers
        self.end = at
        self.commits: list[Commit] = []

    def append(self, *about: int, **options: int) -> Duplicate | None:
        made = header(*about, **options)  # type: ignore[arg-type]
        seen = self.producers.check(made)
        if seen is None:
            commit = Commit()
            self.commits.append(commit)
            self.producers.appended(made, self.end, commit)
            self.end += made.last_offset_delta + 1
        return seen


@in_simulation
async def test_batches_in_their_order_are_new() -> None:
    log = Log()
    for sequence in (0, 1, 2):
        assert log.append(sequence) is None
    assert log.append(3, 4) is None
    assert log.append(7) is None
    (entry,) = log.producers.entries()
    assert (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset) == (7, 0, 7, 7)
    assert [tuple(row)[:4] for row in entry.recent] == [
        (0, 0, 0, 0),
        (1, 1, 1, 1),
        (2, 2, 2, 2),
        (3, 6, 3, 6),
        (7, 7, 7, 7),
    ]


@in_simulation
async def test_each_of_the_last_five_is_told_with_its_place_and_commit() -> None:
    log = Log(at=100)
    for sequence in range(0, 14, 2):
        log.append(sequence, 2)
    for at in range(2, 7):
        offset = 100 + 2 * at
        assert log.append(2 * at, 2) == Duplicate(offset, offset + 1, log.commits[at])
    assert log.end == 114, "a duplicate takes no place"


@in_simulation
async def test_an_older_batch_is_told_as_such_once_it_is_known_to_be_committed() -> None:
    log = Log()
    for sequence in range(6):
        log.append(sequence)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(0)  # it may still be refused: nobody must take it for stored
    log.commits[0].succeed()
    with pytest.raises(OutOfOrderSequenceError):
        log.append(0)
    log.commits[1].succeed()
    with pytest.raises(DuplicateSequenceError, match="sequence 0 to 0 where 6 is next"):
        log.append(0)
    for commit in log.commits[2:]:
        commit.fail(ClosedError("the stream ended"))


@in_simulation
async def test_an_older_batch_of_a_producer_that_began_in_the_middle_is_out_of_order() -> None:
    """What it sent before is not known, so it cannot be told as stored."""
    log = Log()
    for sequence in range(10, 20):
        log.append(sequence)
        log.commits[-1].succeed()
    for sequence in (0, 9, 12):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(sequence)


@in_simulation
async def test_what_overlaps_or_leaves_a_gap_is_out_of_order() -> None:
    log = Log()
    log.append(0, 4)
    log.append(4, 4)
    for about in ((9,), (0, 3), (0, 8), (2, 4), (4, 5), (7, 2), (LAST,)):
        with pytest.raises(OutOfOrderSequenceError, match="where 8 is next"):
            log.append(*about)
    assert log.append(8) is None


@in_simulation
async def test_of_an_unknown_producer_any_sequence_is_taken() -> None:
    log = Log()
    assert log.append(41) is None
    with pytest.raises(OutOfOrderSequenceError):
        log.append(40)
    assert log.append(42) is None


@in_simulation
async def test_sequences_go_round() -> None:
    log = Log()
    assert log.append(LAST - 1) is None
    assert log.append(LAST, 3) is None  # LAST, 0, 1
    assert log.append(2) is None
    assert log.append(LAST, 3) == Duplicate(1, 3, log.commits[1])
    with pytest.raises(OutOfOrderSequenceError):
        log.append(1)
    log = Log()
    log.append(LAST)
    assert log.append(0) is None


@in_simulation
async def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    log = Log()
    log.append(0)
    log.append(1)
    with pytest.raises(OutOfOrderSequenceError, match="a new epoch starts at 0"):
        log.append(2, epoch=1)
    assert log.append(0, epoch=1) is None
    with pytest.raises(ProducerFencedError, match="epoch 1 has written here"):
        log.append(2, epoch=0)
    with pytest.raises(ProducerFencedError):
        log.append(0, epoch=0)  # nor is it told as a duplicate
    assert log.append(0, epoch=1) == Duplicate(2, 2, log.commits[2])
    (entry,) = log.producers.entries()
    assert (entry.epoch, len(entry.recent)) == (1, 1)


@in_simulation
async def test_a_check_changes_nothing() -> None:
    producers = Producers()
    for _ in range(3):
        assert producers.check(header(5)) is None
    assert len(producers) == 0


@pytest.mark.parametrize(("sequence", "epoch"), [(-1, 0), (0, -1), (-5, 0)])
@pytest.mark.parametrize("known", [False, True])
def test_a_producer_without_epoch_or_sequence_is_refused(
    sequence: int, epoch: int, known: bool
) -> None:
    async def main() -> None:
        log = Log()
        if known:
            log.append(0)
        with pytest.raises(InvalidError, match="counts both from 0") as raised:
            log.append(sequence, epoch=epoch)
        assert type(raised.value) is InvalidError

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_what_is_known_goes_on_from_a_bundle_as_if_nothing_had_happened() -> None:
    log = Log()
    history = History("k")
    for sequence in range(7):
        made = header(sequence)._replace(base_offset=sequence)
        history.observe(made, b"")
        log.append(sequence)
    restored = Producers(history.producers.entries())
    assert restored.entries() == log.producers.entries()
    again = Log(restored, at=7)
    assert again.append(6) == Duplicate(6, 6, None)
    with pytest.raises(OutOfOrderSequenceError):
        again.append(1)  # it may have begun in the middle: the bundle does not tell
    assert again.append(7) is None


@in_simulation
async def test_open_transactions_are_kept_in_mind() -> None:
    log = Log(at=5)
    log.append(0, transactional=True)
    log.append(1, transactional=True)
    (entry,) = log.producers.entries()
    assert entry.transaction_first_offset == 5
    assert Producers(log.producers.entries()).entries() == log.producers.entries()


# --- bounds


@in_simulation
async def test_a_silent_producer_is_forgotten_when_another_comes() -> None:
    log = Log(Producers((), ProducerSettings(id_expiration_ms=10_000)))
    log.append(0, producer=1)
    log.append(0, producer=2)
    await runtime.sleep(9)
    log.append(1, producer=2)
    log.append(0, producer=3)
    assert [row.producer_id for row in log.producers.entries()] == [1, 2, 3]
    await runtime.sleep(2)
    log.append(0, producer=4)
    assert [row.producer_id for row in log.producers.entries()] == [2, 3, 4]


@in_simulation
async def test_a_producer_that_comes_back_after_its_expiry_may_go_on_anywhere() -> None:
    log = Log(Producers((), ProducerSettings(id_expiration_ms=10_000)))
    log.append(0, epoch=3)
    await runtime.sleep(10)
    assert log.append(77, epoch=3) is None
    (entry,) = log.producers.entries()
    assert [row.base_sequence for row in entry.recent] == [77]
    with pytest.raises(OutOfOrderSequenceError):
        log.append(0, epoch=3)


@in_simulation
async def test_an_open_transaction_does_not_expire() -> None:
    log = Log(Producers((), ProducerSettings(id_expiration_ms=1_000)))
    log.append(0, producer=1, transactional=True)
    await runtime.sleep(5)
    log.producers.expire()
    assert 1 in log.producers


@in_simulation
async def test_past_the_bound_the_longest_silent_go() -> None:
    log = Log(Producers((), ProducerSettings(per_partition_max=20)))
    log.append(0, producer=0, transactional=True)
    for producer in range(1, 50):
        await runtime.sleep(1)
        log.append(0, producer=producer)
        if producer > 1:
            log.append(producer, producer=1)  # it writes all the time
        else:
            log.append(1, producer=1)
        assert len(log.producers) <= 20
    known = [row.producer_id for row in log.producers.entries()]
    assert known[:2] == [0, 1]
    assert known[2:] == list(range(50 - len(known) + 2, 50))


@in_simulation
async def test_all_partitions_together_forget_the_longest_silent_and_none_on_its_way() -> None:
    share = runtime.MemoryShare("producers", 32 * PRODUCER_BYTES)
    memory = ProducerMemory(share)
    logs = [Log(Producers((), memory=memory)) for _ in range(3)]
    logs[0].append(0, producer=0)  # its batch stays on its way
    for producer in range(1, 100):
        await runtime.sleep(1)
        log = logs[producer % 3]
        log.append(0, producer=producer)
        log.commits[-1].succeed()
        assert share.used == PRODUCER_BYTES * sum(len(each.producers) for each in logs)
        assert share.used <= share.bytes_max
    known = sorted(row.producer_id for log in logs for row in log.producers.entries())
    assert known[0] == 0
    assert known[1:] == list(range(100 - len(known) + 1, 100))
    for log in logs:
        log.producers.uncount()
    assert share.used == 0
    assert len(logs[1].producers) > 0


@in_simulation
async def test_what_is_restored_counts_as_well() -> None:
    share = runtime.MemoryShare("producers", 32 * PRODUCER_BYTES)
    log = Log()
    for producer in range(50):
        log.append(0, producer=producer)
    restored = Producers(log.producers.entries(), memory=ProducerMemory(share))
    assert share.used == PRODUCER_BYTES * len(restored) <= share.bytes_max
