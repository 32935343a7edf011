"""Idempotent producers of a partition: decides which batches are new and which are duplicates.

A producer numbers its records. Its next batch must continue where its last one ended. A batch that
equals one of its last five is a duplicate, and gets the response of the first one once that is
committed. A higher epoch starts again at 0, a lower one is rejected. For an unknown producer any
number is accepted, as in Kafka, since its state may have expired.

The state is that at the *appended* end of the log. It is never rolled back: if the stream ends, the
log is closed with it. Its size is limited by `producers.per.partition.max`, and for all partitions
of a process by `producers.memory.bytes`: the producers that were idle longest are forgotten first,
those with a batch in flight last. A producer that was idle for `producer.id.expiration.ms` is
forgotten. These limits are enforced only when an unknown producer appends, and during tiering.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from neve import runtime
from neve.errors import InvalidError
from neve.log.segment.history import NO_COORDINATOR_EPOCH, SEQUENCE_MASK
from neve.log.segment.sections import NO_OFFSET, RECENT_BATCHES_MAX, ProducerEntry, RecentBatch
from neve.log.wal.pending import Commit
from neve.records.batch import NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from neve.settings import ProducerSettings

# Sequences wrap around: one up to this far below another counts as earlier, any other as later.
_HALF_WAY = (SEQUENCE_MASK + 1) // 2
# One in this many producers is evicted at once, so that the sort by idle time is rare.
_EVICTED_SHARE = 16
# Producers to examine at most in search of one that can be forgotten.
_EXAMINED_MAX = 100
PRODUCER_BYTES = 1024
"""The memory of one producer of a partition, here and in the partition's history."""


class OutOfOrderSequenceError(InvalidError):
    """A batch does not continue where its producer's last one ended: a batch is missing."""


class DuplicateSequenceError(InvalidError):
    """A batch was committed, but its offsets are no longer known. It need not be sent again."""


class ProducerFencedError(InvalidError):
    """A newer instance of the producer has written here: this one must stop or initialize again."""


class Duplicate(NamedTuple):
    """A batch that is already in the log. `commit` is None if this process did not append it."""

    base_offset: int
    last_offset: int
    commit: Commit | None


# First and last sequence, first and last offset, time, and the commit if this process made it.
_Seen: TypeAlias = tuple[int, int, int, int, int, Commit | None]


class _Producer:
    """The state of one producer under its newest epoch."""

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "from_zero",
        "last_sequence",
        "recent",
        "seen_at",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int, seen_at: float) -> None:
        self.epoch = epoch
        self.last_sequence = NO_SEQUENCE
        self.recent: list[_Seen] = []
        self.seen_at = seen_at
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_OFFSET
        # Whether every sequence from 0 on is known to have been appended under this epoch.
        self.from_zero = False

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open or a batch is in flight, so that it must be remembered."""
        commit = self.recent[-1][5] if self.recent else None
        is_on_its_way = commit is not None and not commit.done
        return is_on_its_way or self.transaction_first_offset != NO_OFFSET


class ProducerMemory:
    """The memory of the producers of all partitions of a process."""

    def __init__(self, share: runtime.MemoryShare) -> None:
        self._share = share
        # Each with its partition and id, the longest idle first.
        self._producers: OrderedDict[_Producer, tuple[Producers, int]] = OrderedDict()

    def add(self, producer: _Producer, partition: Producers, producer_id: int) -> None:
        """Count a new producer. Above the limit, forget others."""
        self._share.count(PRODUCER_BYTES)
        while self._share.used > self._share.bytes_max and self._forget_one():
            pass
        self._producers[producer] = partition, producer_id

    def heard(self, producer: _Producer) -> None:
        """Mark a producer as the most recently active."""
        self._producers.move_to_end(producer)

    def remove(self, producer: _Producer) -> None:
        del self._producers[producer]
        self._share.give_back(PRODUCER_BYTES)

    def _forget_one(self) -> bool:
        for _ in range(min(len(self._producers), _EXAMINED_MAX)):
            producer, (partition, producer_id) = next(iter(self._producers.items()))
            if not producer.is_open:
                partition.forget([producer_id])
                return True
            self._producers.move_to_end(producer)
        return False


class Producers:
    """The producers of one partition. `check` changes nothing; `appended` records a batch."""

    def __init__(
        self,
        entries: Iterable[ProducerEntry] = (),
        settings: ProducerSettings | None = None,
        *,
        memory: ProducerMemory | None = None,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        chosen = settings or ProducerSettings()
        self._memory = memory
        self._expiration_seconds = chosen.id_expiration_ms / 1000
        self._producers_max = chosen.per_partition_max
        self._clock = clock
        self._known: dict[int, _Producer] = {}
        self._expired_at = clock()
        for entry in entries:
            self._know(entry.producer_id, self._restored(entry))

    def _know(self, producer_id: int, producer: _Producer) -> None:
        if self._memory is not None:
            self._memory.add(producer, self, producer_id)
        self._known[producer_id] = producer

    def _restored(self, entry: ProducerEntry) -> _Producer:
        # Counts as active now: the producer's timestamps do not show when it was last active.
        producer = _Producer(entry.epoch, self._expired_at)
        producer.last_sequence = entry.last_sequence
        producer.recent = [(*batch, None) for batch in entry.recent]
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.transaction_first_offset = entry.transaction_first_offset
        return producer

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._known

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Return the earlier append if the batch is a duplicate, or None if it may be appended.

        Raises ProducerFencedError, OutOfOrderSequenceError or DuplicateSequenceError if it must be
        rejected, and InvalidError for a negative epoch or sequence.
        """
        producer = self._known.get(header.producer_id)
        if (
            producer is not None
            and header.base_sequence == (producer.last_sequence + 1) & SEQUENCE_MASK
            and header.producer_epoch == producer.epoch
        ):
            return None
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidError(
                f"a batch of producer {header.producer_id} has epoch {header.producer_epoch} and "
                f"sequence {header.base_sequence}: an idempotent producer counts both from 0"
            )
        if producer is None or self._is_expired(producer, self._clock()):
            return None
        return self._judge(producer, header)

    def _judge(self, producer: _Producer, header: BatchHeader) -> Duplicate | None:
        """Do the same for a batch of a known producer that does not continue its last batch."""
        about = f"producer {header.producer_id} epoch {header.producer_epoch}"
        sequence = header.base_sequence
        if header.producer_epoch < producer.epoch:
            raise ProducerFencedError(
                f"{about}: epoch {producer.epoch} has written here since; get a new producer id"
            )
        if header.producer_epoch > producer.epoch:
            if sequence == 0:
                return None
            raise OutOfOrderSequenceError(
                f"{about}: its first batch has sequence {sequence}, a new epoch starts at 0"
            )
        last_sequence = (sequence + header.last_offset_delta) & SEQUENCE_MASK
        for seen in producer.recent:
            if seen[0] == sequence and seen[1] == last_sequence:
                return Duplicate(seen[2], seen[3], seen[5])
        expected = (producer.last_sequence + 1) & SEQUENCE_MASK
        reason = f"{about}: sequence {sequence} to {last_sequence} where {expected} is next"
        if _is_long_committed(producer, last_sequence):
            raise DuplicateSequenceError(f"{reason}; it is in the log already")
        raise OutOfOrderSequenceError(f"{reason}: send what is missing, or get a new producer id")

    def appended(self, header: BatchHeader, base_offset: int, commit: Commit) -> None:
        """Record a batch that was appended at `base_offset`. The header's offset is ignored."""
        producer = self._known.get(header.producer_id)
        epoch, sequence, delta = (
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
        )
        if producer is None:
            producer = self._welcome(header.producer_id, epoch)
            producer.from_zero = sequence == 0
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.recent = []
            producer.from_zero = sequence == 0
        elif sequence != (producer.last_sequence + 1) & SEQUENCE_MASK:
            # The producer had expired, so `check` accepted any sequence: its old state is void.
            producer.recent = []
            producer.from_zero = False
        last_sequence = (sequence + delta) & SEQUENCE_MASK
        recent = producer.recent
        recent.append(
            (
                sequence,
                last_sequence,
                base_offset,
                base_offset + delta,
                header.max_timestamp,
                commit,
            )
        )
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[0]
        producer.last_sequence = last_sequence
        producer.seen_at = self._clock()
        if self._memory is not None:
            self._memory.heard(producer)
        if header.attributes & TRANSACTIONAL and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = base_offset

    def _welcome(self, producer_id: int, epoch: int) -> _Producer:
        self.expire()
        if len(self._known) >= self._producers_max:
            self._evict(1 + self._producers_max // _EVICTED_SHARE)
        producer = _Producer(epoch, self._clock())
        self._know(producer_id, producer)
        return producer

    def _evict(self, count: int) -> None:
        """Forget the producers that were idle longest; open ones only if there are no others."""

        def rank(producer_id: int) -> tuple[bool, bool, float]:
            producer = self._known[producer_id]
            in_transaction = producer.transaction_first_offset != NO_OFFSET
            return in_transaction, producer.is_open, producer.seen_at

        self.forget(sorted(self._known, key=rank)[:count])

    def forget(self, producer_ids: Iterable[int]) -> None:
        """Remove these producers."""
        for each in producer_ids:
            producer = self._known.pop(each)
            if self._memory is not None:
                self._memory.remove(producer)

    def uncount(self) -> None:
        """Release the memory that the process counts for these producers: the log is closed."""
        memory, self._memory = self._memory, None
        if memory is not None:
            for producer in self._known.values():
                memory.remove(producer)

    def expire(self) -> None:
        """Forget producers that were idle for too long.

        Does nothing if the last expiration was a short while ago.
        """
        now = self._clock()
        if now - self._expired_at < self._expiration_seconds / _EVICTED_SHARE:
            return
        self._expired_at = now
        self.forget([each for each, row in self._known.items() if self._is_expired(row, now)])

    def _is_expired(self, producer: _Producer, now: float) -> bool:
        silent_seconds = now - producer.seen_at
        open_transaction = producer.transaction_first_offset != NO_OFFSET
        return silent_seconds >= self._expiration_seconds and not open_transaction

    def entries(self) -> tuple[ProducerEntry, ...]:
        """Return all producers, ascending by id, with their state at the appended end."""
        return tuple(_entry(each, self._known[each]) for each in sorted(self._known))


def _is_long_committed(producer: _Producer, last_sequence: int) -> bool:
    """Return whether a batch is older than all remembered ones and is known to be committed."""
    if not producer.from_zero or len(producer.recent) < RECENT_BATCHES_MAX:
        return False
    oldest = producer.recent[0]
    behind = (oldest[0] - last_sequence - 1) & SEQUENCE_MASK
    # Commits are in offset order: every batch before a committed one is committed.
    return behind < _HALF_WAY and (oldest[5] is None or oldest[5].succeeded)


def _entry(producer_id: int, producer: _Producer) -> ProducerEntry:
    recent = tuple(RecentBatch(*seen[:5]) for seen in producer.recent)
    last = recent[-1] if recent else RecentBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, -1)
    return ProducerEntry(
        producer_id,
        producer.epoch,
        producer.last_sequence,
        last.last_offset,
        last.timestamp,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
        recent,
    )
