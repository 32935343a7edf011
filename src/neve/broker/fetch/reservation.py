"""The room that one fetch has among the answers that clients have yet to take."""

from __future__ import annotations

from neve.broker.unsent_responses import UnsentResponses


class Reservation:
    """Bytes for the records of one answer, from when they are found until the answer is made.

    `is_reader` says that the client is known to read its answers.
    """

    __slots__ = ("_is_reader", "_reserved_bytes", "_spare_bytes", "_unsent")

    def __init__(self, unsent: UnsentResponses, *, is_reader: bool) -> None:
        self._unsent = unsent
        self._is_reader = is_reader
        self._reserved_bytes = 0
        self._spare_bytes = 0  # of those reserved: no records lie in them

    @property
    def room_bytes(self) -> int:
        """How much more could be reserved now."""
        return self._unsent.room_bytes(is_reader=self._is_reader)

    def ahead(self, size: int) -> bool:
        """Reserve bytes for records that are yet to be found. Returns whether there was room."""
        if size <= 0:
            return True
        if not self._unsent.try_reserve(size, is_reader=self._is_reader):
            return False
        self._reserved_bytes += size
        self._spare_bytes += size
        return True

    def use(self, size: int) -> bool:
        """Put records in. Returns False where there is no room for them."""
        if not self.ahead(size - self._spare_bytes):
            return False
        self._spare_bytes -= size
        return True

    def put_back(self, size: int) -> None:
        """These records are not to be answered after all; their bytes stay reserved."""
        self._spare_bytes += size

    async def wait(self, size: int) -> None:
        """Reserve bytes as soon as there is room."""
        await self._unsent.reserve(size, is_reader=self._is_reader)
        self._reserved_bytes += size
        self._spare_bytes += size

    def release(self) -> None:
        """The answer is made, and counted by its connection; or it holds no records for now."""
        if self._reserved_bytes:
            self._unsent.release(self._reserved_bytes)
            self._reserved_bytes = self._spare_bytes = 0
