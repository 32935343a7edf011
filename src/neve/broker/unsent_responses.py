"""The responses of all connections that clients have not read yet, bounded by `fetch.unsent.bytes`.

Responses with records may be large. They reserve their bytes before they are made, or wait for
them. A part is kept for clients that are known to read. Among the fetches that wait these clients
come first, and the smallest responses before others. All other responses, and small ones with
records, are counted once they are made. Beyond the bound, the connections whose clients have read
nothing for the longest time are closed. While fetches wait, a client that has read nothing for a
while is closed as well.
"""

from __future__ import annotations

from typing import Protocol

from neve import runtime

SMALL_BYTES = 64 * 1024
"""Records up to this size need not wait: the kernel buffers them for clients that read."""
STALLED_SECONDS = 1.0
"""A client that reads nothing for so long is closed if others wait for room."""
# Of the bound. A response may keep a buffer in memory that is several times its size.
PILE_SHARE = 8
# Of the bound: what is kept for clients that are known to read.
_READERS_SHARE = 4
_UNKNOWN_RANK = 1 << 32
# Of the bound: what is freed at once beyond the excess, so that it is seldom done.
_SPARE_SHARE = 16


class Holder(Protocol):
    """The responses of one connection."""

    @property
    def counted_bytes(self) -> int:
        """Their bytes, as last counted."""
        ...

    def has_moved(self) -> bool:
        """Whether the client has read any since the last look."""
        ...

    def drop(self) -> None:
        """Close the connection and drop its responses."""
        ...


class UnsentResponses:
    """Counts responses by the connection that holds them."""

    def __init__(self, bytes_max: int) -> None:
        self.share = runtime.MemoryShare("unsent-answers", bytes_max, self._free_stalled)
        self.bytes_making = 0  # of those held: for responses that are not made yet
        self._since: dict[Holder, float] = {}  # since when each reads nothing, the longest first

    def room_bytes(self, *, is_reader: bool) -> int:
        """How many bytes a response to this client may have now."""
        spare = 0 if is_reader else self.share.bytes_max // _READERS_SHARE
        return max(0, self.share.room_bytes - spare)

    @property
    def is_piling_up(self) -> bool:
        """Whether clients are so slow that the buffers which responses keep matter too."""
        return self.share.used - self.bytes_making > self.share.bytes_max // PILE_SHARE

    # -- responses with records, before they are made ----------------------------------------------

    def try_reserve(self, size: int, *, is_reader: bool) -> bool:
        """Reserve bytes for records. Returns False if they must wait for room."""
        if size <= SMALL_BYTES:
            self.share.count(size)
        elif not self.share.try_take(size, **self._claim(size, is_reader)):
            return False
        self.bytes_making += size
        return True

    async def reserve(self, size: int, *, is_reader: bool) -> None:
        """Wait for room, and reserve bytes for records."""
        await self.share.take(size, **self._claim(size, is_reader))
        self.bytes_making += size

    def _claim(self, size: int, is_reader: bool) -> dict[str, int]:
        if is_reader:
            return {"rank": size}
        return {"rank": _UNKNOWN_RANK + size, "spare": self.share.bytes_max // _READERS_SHARE}

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
            self._moved(holder)
        self.share.count(by_bytes)
        excess = self.share.used - self.share.bytes_max
        if by_bytes > 0 and excess > 0:
            size = excess + self.share.bytes_max // _SPARE_SHARE
            self._free(
                size, runtime.monotonic(), leaves=1
            )  # one response may be larger than the bound

    def press(self) -> None:
        """Make room for fetches that wait. To be called regularly."""
        self.share.press()

    def _moved(self, holder: Holder) -> None:
        self._since.pop(holder, None)
        self._since[holder] = runtime.monotonic()

    def _free_stalled(self, size: int) -> None:
        self._free(size, runtime.monotonic() - STALLED_SECONDS)

    def _free(self, size: int, stalled_since: float, leaves: int = 0) -> None:
        """Close connections that have read nothing since then, until `size` bytes are free."""
        for holder, since in list(self._since.items()):
            if size <= 0 or since > stalled_since or len(self._since) <= leaves:
                return
            if holder.has_moved():
                self._moved(holder)
                continue
            size -= holder.counted_bytes
            holder.drop()
