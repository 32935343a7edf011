"""Fetch sessions (KIP-227): consumer and broker send each other only what changed.

The cache is bounded by the number of sessions and by their bytes (`fetch.sessions.bytes`). Each
session is bounded by the number of its partitions and by the length of its topic names. A full
cache evicts the least recently used sessions, but only those that were unused for
`fetch.session.evict.ms`. A client that gets no session sends a full request each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from neve import runtime
from neve.broker.errors import (
    FetchSessionEpochError,
    FetchSessionNotFoundError,
    FetchSessionTopicIdError,
)
from neve.broker.fetch.partition import FetchPartition
from neve.protocol.messages.fetch import FetchRequest

NO_SESSION = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1
_SESSION_ID_MAX = 2**31 - 1

# Kafka's limit. A request with a longer name gets no session.
_NAME_LENGTH_MAX = 249

PARTITION_BYTES = 600
"""The memory of one partition of a session, with a long name."""
_SESSION_BYTES = 1_000
"""The memory of a session without its partitions."""

PartitionKey = tuple[str, bytes, int]


class FetchSession:
    """The partitions that one consumer fetches, kept from request to request."""

    __slots__ = ("epoch", "partitions", "session_id", "used_at", "uses_ids")

    def __init__(
        self, session_id: int, uses_ids: bool, partitions: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.partitions = partitions
        self.epoch = FIRST_EPOCH + 1
        self.used_at = runtime.monotonic()

    @property
    def size(self) -> int:
        """The bytes of memory that the session takes up."""
        return _SESSION_BYTES + PARTITION_BYTES * len(self.partitions)

    def expect_next(self) -> None:
        """Advance the epoch. After the last comes 1, because 0 means a new session."""
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Move partitions that got records to the end, so that no partition starves."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchSessions:
    """The sessions of one broker."""

    def __init__(
        self,
        sessions_max: int,
        evict_after_seconds: float,
        partitions_max: int = 10_000,
        share: runtime.MemoryShare | None = None,
    ) -> None:
        self._share = share or runtime.MemoryShare("fetch-sessions", 2**31)
        self._partitions_max = partitions_max
        self._sessions_max = sessions_max
        self._evict_after_seconds = evict_after_seconds
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, uses_ids: bool
    ) -> tuple[FetchSession | None, list[FetchPartition], bool]:
        """Find or create the session of a request.

        Returns the session, all partitions that it fetches, and whether to send only changes. The
        session is None if the client must send full requests. Raises FetchSessionError if the
        request does not match its session.
        """
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self._drop(session_id)
            partitions = _all_of(request)
            is_new = epoch == FIRST_EPOCH and self._may_keep(partitions, request)
            session = self._create(partitions, uses_ids) if is_new else None
            return session, list(partitions.values()), False
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFoundError(f"fetch session {session_id} does not exist")
        if session.epoch != epoch:
            raise FetchSessionEpochError(
                f"the next epoch of fetch session {session_id} is {session.epoch}, not {epoch}"
            )
        if session.uses_ids != uses_ids:
            expected = "id" if session.uses_ids else "name"
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} names topics by {expected}: continue so, or start a "
                "new session"
            )
        self._sessions.move_to_end(session_id)
        session.used_at = runtime.monotonic()
        session.expect_next()
        before = session.size
        _update(session.partitions, request)
        self._share.count(session.size - before)
        if not self._may_keep(session.partitions, request) or not self._fits():
            self._drop(session_id)
            raise FetchSessionNotFoundError(f"fetch session {session_id} does not exist")
        return session, list(session.partitions.values()), True

    def _may_keep(
        self, partitions: dict[PartitionKey, FetchPartition], request: FetchRequest
    ) -> bool:
        """Whether a session of these partitions is within its own bounds."""
        if len(partitions) > self._partitions_max:
            return False
        return all(len(topic.topic) <= _NAME_LENGTH_MAX for topic in request.topics)

    def _create(
        self, partitions: dict[PartitionKey, FetchPartition], uses_ids: bool
    ) -> FetchSession | None:
        """Add a session. Returns None if it has no partitions, or the cache is full."""
        if not partitions:
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = runtime.chance().randrange(1, _SESSION_ID_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, partitions)
        self._share.count(session.size)
        if self._fits():
            return session
        self._drop(session_id)
        return None

    def _fits(self) -> bool:
        """Evict sessions that were unused for long. Returns whether the rest fits."""
        while len(self._sessions) > self._sessions_max or self._share.used > self._share.bytes_max:
            oldest = next(iter(self._sessions.values()))
            if runtime.monotonic() - oldest.used_at < self._evict_after_seconds:
                return False
            self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._share.give_back(session.size)


def _requested(request: FetchRequest) -> Iterable[tuple[str, bytes, FetchRequest.Partition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic, topic.topic_id, partition


def _all_of(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    partitions = (FetchPartition(*each) for each in _requested(request))
    return {partition.key: partition for partition in partitions}


def _update(partitions: dict[PartitionKey, FetchPartition], request: FetchRequest) -> None:
    for topic, topic_id, requested in _requested(request):
        partition = partitions.get((topic, topic_id, requested.partition))
        if partition is None:
            partition = FetchPartition(topic, topic_id, requested)
            partitions[partition.key] = partition
        else:
            partition.update(requested)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
