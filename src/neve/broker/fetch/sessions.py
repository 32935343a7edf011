"""Fetch sessions (KIP-227): consumer and broker send each other only what changed.

The cache of sessions is bounded in number and in bytes (`fetch.sessions.bytes`), and so is each
session: by the number of its partitions, and by the names that it keeps. When the cache is full,
sessions that were used longest ago make room, if that is long enough ago. A client that gets no
session sends everything each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from neve import runtime
from neve.broker.errors import SessionEpochError, SessionNotFoundError, SessionTopicIdError
from neve.broker.fetch.partition import FetchPartition
from neve.protocol.messages.fetch import FetchRequest

NO_SESSION = 0
FIRST_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1
_SESSION_ID_MAX = 2**31 - 1

# No topic has a longer name: none such is worth remembering.
_NAME_MAX = 249

ROW_BYTES = 600
"""What one partition of a session takes up, with a long name."""
_SESSION_BYTES = 1_000
"""What a session takes up beside them."""

PartitionKey = tuple[str, bytes, int]


class Session:
    """What one consumer wants, kept from request to request."""

    __slots__ = ("epoch", "session_id", "used_at", "uses_ids", "wanted")

    def __init__(
        self, session_id: int, uses_ids: bool, wanted: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.wanted = wanted
        self.epoch = FIRST_EPOCH + 1
        self.used_at = runtime.monotonic()

    @property
    def size(self) -> int:
        """The bytes that it takes up."""
        return _SESSION_BYTES + ROW_BYTES * len(self.wanted)

    def expect_next(self) -> None:
        # The epoch behind the last is 1 again: 0 means a new session.
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1

    def to_the_end(self, keys: Iterable[PartitionKey]) -> None:
        """Move partitions that got records to the end, so that no partition starves."""
        for key in keys:
            row = self.wanted.pop(key, None)
            if row is not None:
                self.wanted[key] = row


class Sessions:
    """The sessions of one broker. `begin` says what a request is about."""

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
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the one used last is last

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, uses_ids: bool
    ) -> tuple[Session | None, list[FetchPartition], bool]:
        """Return the session, all partitions it fetches, and whether to send only changes."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self._drop(session_id)
            wanted = _all_of(request)
            is_new = epoch == FIRST_EPOCH and self._may_keep(wanted, request)
            session = self._made(wanted, uses_ids) if is_new else None
            return session, list(wanted.values()), False
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise SessionEpochError(
                f"the next epoch of fetch session {session_id} is {session.epoch}, not {epoch}"
            )
        if session.uses_ids != uses_ids:
            raise SessionTopicIdError(f"fetch session {session_id} names topics in another way")
        self._sessions.move_to_end(session_id)
        session.used_at = runtime.monotonic()
        session.expect_next()
        before = session.size
        _change(session.wanted, request)
        self._share.count(session.size - before)
        if not self._may_keep(session.wanted, request) or not self._fits():
            self._drop(session_id)
            raise SessionNotFoundError(f"there is no fetch session {session_id}")
        return session, list(session.wanted.values()), True

    def _may_keep(self, wanted: dict[PartitionKey, FetchPartition], request: FetchRequest) -> bool:
        if len(wanted) > self._partitions_max:
            return False
        return all(len(topic.topic) <= _NAME_MAX for topic in request.topics)

    def _made(self, wanted: dict[PartitionKey, FetchPartition], uses_ids: bool) -> Session | None:
        if not wanted:
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = runtime.chance().randrange(1, _SESSION_ID_MAX)
        session = self._sessions[session_id] = Session(session_id, uses_ids, wanted)
        self._share.count(session.size)
        if self._fits():
            return session
        self._drop(session_id)
        return None

    def _fits(self) -> bool:
        """Whether all sessions may be kept, once those unused for long have made room."""
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


def _asked(request: FetchRequest) -> Iterable[tuple[str, bytes, FetchRequest.Partition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic, topic.topic_id, partition


def _all_of(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    rows = (FetchPartition(*asked) for asked in _asked(request))
    return {row.key: row for row in rows}


def _change(wanted: dict[PartitionKey, FetchPartition], request: FetchRequest) -> None:
    for topic, topic_id, asked in _asked(request):
        row = wanted.get((topic, topic_id, asked.partition))
        if row is None:
            row = FetchPartition(topic, topic_id, asked)
            wanted[row.key] = row
        else:
            row.ask(asked)
    for gone in request.forgotten_topics_data:
        for index in gone.partitions:
            wanted.pop((gone.topic, gone.topic_id, index), None)
