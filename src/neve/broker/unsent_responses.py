"""The responses of all connections that clients have not read yet, bounded by `fetch.unsent.bytes`.

Responses with records may be large. They reserve their bytes before they are made, or wait for
them. A part of the bound is reserved for clients that keep up: they have read their last large
response. Among waiting fetches, those of clients that keep up come first, then the smallest. All
other responses, and small ones with records, are counted once they are made. Beyond the bound, the
broker closes the connections whose clients have read nothing for the longest time. While fetches
wait, it also closes a client that has read nothing for `STALLED_SECONDS`.
"""

from __future__ import annotations

from typing import Protocol

from neve import runtime

SMALL_BYTES = 64 * 1024
"""Records up to this size need not wait: the kernel buffers them for clients that read."""
STALLED_SECONDS = 1.0
"""A client that reads nothing for this long is closed if other fetches wait for room."""
# Fractions of the bound, as divisors.
# Beyond this there is a backlog. A response may keep a buffer of several times its size in memory.
BACKLOG_SHARE = 8
# Reserved for clients that keep up.
_KEEPING_UP_SHARE = 4
_UNKNOWN_RANK = 1 << 32
# Freed beyond the excess, so that connections are seldom closed for it.
_SPARE_SHARE = 16


class Holder(Protocol):
    """The responses of one connection."""

    @property
    def counted_bytes(self) -> int:
        """The bytes of these responses, as last counted."""
        ...

    def has_read_more(self) -> bool:
        """Whether the client has read anything since the bytes were last counted."""
        ...

    def drop(self) -> None:
        """Close the connection and drop its responses."""
        ...


class UnsentResponses:
    """Counts responses by the connection that holds them."""

    def __init__(self, bytes_max: int) -> None:
        self.share = runtime.MemoryShare("unsent-responses", bytes_max, self._free_stalled)
        self.bytes_making = 0  # reserved for responses that are not made yet
        self._since: dict[Holder, float] = {}  # when each client last read, oldest first

    def room_bytes(self, *, client_keeps_up: bool) -> int:
        """How many bytes a response to this client may have now."""
        spare = 0 if client_keeps_up else self.share.bytes_max // _KEEPING_UP_SHARE
        return max(0, self.share.room_bytes - spare)

    @property
    def is_backlogged(self) -> bool:
        """Whether clients are slow to read, so that the buffers behind responses matter too."""
        return self.share.used - self.bytes_making > self.share.bytes_max // BACKLOG_SHARE

    # -- responses with records, before they are made ----------------------------------------------

    def try_reserve(self, size: int, *, client_keeps_up: bool) -> bool:
        """Reserve bytes for records. Returns False if they must wait for room."""
        if size <= SMALL_BYTES:
            self.share.count(size)
        elif not self.share.try_take(size, **self._claim(size, client_keeps_up)):
            return False
        self.bytes_making += size
        return True

    async def reserve(self, size: int, *, client_keeps_up: bool) -> None:
        """Wait for room, and reserve bytes for records."""
        await self.share.take(size, **self._claim(size, client_keeps_up))
        self.bytes_making += size

    def _claim(self, size: int, client_keeps_up: bool) -> dict[str, int]:
        if client_keeps_up:
            return {"rank": size}
        return {"rank": _UNKNOWN_RANK + size, "spare": self.share.bytes_max // _KEEPING_UP_SHARE}

    def release(self, size: int) -> None:
        """Release a reservation: the response is made, or will never be."""
        self.bytes_making -= size
        self.share.give_back(size)

    # -- responses that are made -----------------------------------------------------------------

    def changed(self, holder: Holder, by_bytes: int) -> None:
        """Count a change of the bytes that a connection holds."""
        if not holder.counted_bytes:
            self._since.pop(holder, None)
        elif by_bytes < 0 or holder not in self._since:
            self._note_progress(holder)
        self.share.count(by_bytes)
        excess = self.share.used - self.share.bytes_max
        if by_bytes > 0 and excess > 0:
            size = excess + self.share.bytes_max // _SPARE_SHARE
            # One response may be larger than the bound.
            self._free(size, runtime.monotonic(), connections_min=1)

    def free_for_waiting(self) -> None:
        """Close stalled clients if fetches wait for room. To be called regularly."""
        self.share.free_for_waiting()

    def _note_progress(self, holder: Holder) -> None:
        self._since.pop(holder, None)
        self._since[holder] = runtime.monotonic()

    def _free_stalled(self, size: int) -> None:
        self._free(size, runtime.monotonic() - STALLED_SECONDS)

    def _free(self, size: int, stalled_since: float, connections_min: int = 0) -> None:
        """Close connections that have read nothing since then, until `size` bytes are free."""
        for holder, since in list(self._since.items()):
            if size <= 0 or since > stalled_since or len(self._since) <= connections_min:
                return
            if holder.has_read_more():
                self._note_progress(holder)
                continue
            size -= holder.counted_bytes
            holder.drop()
