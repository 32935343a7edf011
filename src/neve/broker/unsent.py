"""The answers of all connections that clients have yet to take, against `fetch.unsent.bytes`.

Answers of records take their bytes before they are made, or wait for them: they may be large. A
part is kept for clients that are known to read, and among those who wait they come first, the
smallest answers before others. All other answers, and small ones of records, are counted once they
are there. Where that exceeds the bound, the connections whose clients have taken nothing for the
longest time are closed until it does not; where others wait, those that have taken nothing for a
while.
"""

from __future__ import annotations

from typing import Protocol

from neve import runtime

SMALL_BYTES = 64 * 1024
"""Records up to this size need not wait: the system takes them at once from clients that read."""
STALLED_SECONDS = 1.0
"""A client that takes nothing for so long makes room for those who wait."""
# Of the bound. An answer may lie in a piece some times its size, which it keeps in memory.
PILE_SHARE = 8
# Of the bound: what is kept for clients that are known to read.
_READERS_SHARE = 4
_UNKNOWN_RANK = 1 << 32
# Of the bound: what is freed at once beyond the excess, so that it is seldom done.
_SPARE_SHARE = 16


class Holder(Protocol):
    """A connection's answers."""

    @property
    def counted_bytes(self) -> int:
        """What they hold, as last counted."""
        ...

    def has_moved(self) -> bool:
        """Whether the client has taken some since it was last asked for."""
        ...

    def drop(self) -> None:
        """Close the connection, and hold nothing any more."""
        ...


class Unsent:
    """Counts answers by who holds them."""

    def __init__(self, bytes_max: int) -> None:
        self.share = runtime.MemoryShare("unsent-answers", bytes_max, self._free_stalled)
        self.bytes_making = 0  # of those held: for answers that are not made yet
        self._since: dict[Holder, float] = {}  # since when each takes nothing, the longest first

    def room_bytes(self, *, is_reader: bool) -> int:
        """How much a client may be answered now."""
        spare = 0 if is_reader else self.share.bytes_max // _READERS_SHARE
        return max(0, self.share.room_bytes - spare)

    @property
    def is_piling_up(self) -> bool:
        """Whether clients are slow enough that what their answers lie in matters too."""
        return self.share.used - self.bytes_making > self.share.bytes_max // PILE_SHARE

    # -- answers of records, before they are made ----------------------------------------------

    def try_reserve(self, size: int, *, is_reader: bool) -> bool:
        """Take bytes for records. Returns False where they must wait for room."""
        if size <= SMALL_BYTES:
            self.share.count(size)
        elif not self.share.try_take(size, **self._claim(size, is_reader)):
            return False
        self.bytes_making += size
        return True

    async def reserve(self, size: int, *, is_reader: bool) -> None:
        """Take bytes for records as soon as there is room."""
        await self.share.take(size, **self._claim(size, is_reader))
        self.bytes_making += size

    def _claim(self, size: int, is_reader: bool) -> dict[str, int]:
        if is_reader:
            return {"rank": size}
        return {"rank": _UNKNOWN_RANK + size, "spare": self.share.bytes_max // _READERS_SHARE}

    def release(self, size: int) -> None:
        """The answer is made, or will never be."""
        self.bytes_making -= size
        self.share.give_back(size)

    # -- answers that are made -----------------------------------------------------------------

    def changed(self, holder: Holder, by_bytes: int) -> None:
        """What a connection holds has changed, by so much."""
        if not holder.counted_bytes:
            self._since.pop(holder, None)
        elif by_bytes < 0 or holder not in self._since:
            self._moved(holder)
        self.share.count(by_bytes)
        excess = self.share.used - self.share.bytes_max
        if by_bytes > 0 and excess > 0:
            size = excess + self.share.bytes_max // _SPARE_SHARE
            self._free(size, runtime.monotonic(), leaves=1)  # one answer may be larger than all

    def press(self) -> None:
        """Make room for those who wait. To be called now and then."""
        self.share.press()

    def _moved(self, holder: Holder) -> None:
        self._since.pop(holder, None)
        self._since[holder] = runtime.monotonic()

    def _free_stalled(self, size: int) -> None:
        self._free(size, runtime.monotonic() - STALLED_SECONDS)

    def _free(self, size: int, stalled_since: float, leaves: int = 0) -> None:
        """Close those who have taken nothing since then, until so much is free."""
        for holder, since in list(self._since.items()):
            if size <= 0 or since > stalled_since or len(self._since) <= leaves:
                return
            if holder.has_moved():
                self._moved(holder)
                continue
            size -= holder.counted_bytes
            holder.drop()
