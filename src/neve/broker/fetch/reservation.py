"""The bytes that one fetch reserves of `fetch.unsent.bytes`."""

from __future__ import annotations

from neve.broker.unsent_responses import UnsentResponses


class Reservation:
    """Bytes for the records of one response, until the response is made.

    `client_keeps_up` is whether the client has read its last large response.
    """

    __slots__ = ("_client_keeps_up", "_reserved_bytes", "_spare_bytes", "_unsent")

    def __init__(self, unsent: UnsentResponses, *, client_keeps_up: bool) -> None:
        self._unsent = unsent
        self._client_keeps_up = client_keeps_up
        self._reserved_bytes = 0
        self._spare_bytes = 0  # reserved and not used by records yet

    @property
    def room_bytes(self) -> int:
        """How many more bytes could be reserved now."""
        return self._unsent.room_bytes(client_keeps_up=self._client_keeps_up)

    def reserve(self, size: int) -> bool:
        """Reserve bytes before the records are read. Returns False if there is no room."""
        if size <= 0:
            return True
        if not self._unsent.try_reserve(size, client_keeps_up=self._client_keeps_up):
            return False
        self._reserved_bytes += size
        self._spare_bytes += size
        return True

    def use(self, size: int) -> bool:
        """Use reserved bytes for records, and reserve what is missing.

        Returns False if there is no room for them.
        """
        if not self.reserve(size - self._spare_bytes):
            return False
        self._spare_bytes -= size
        return True

    def put_back(self, size: int) -> None:
        """Take records out of the response again. Their bytes stay reserved."""
        self._spare_bytes += size

    async def wait(self, size: int) -> None:
        """Wait until there is room, and reserve bytes."""
        await self._unsent.reserve(size, client_keeps_up=self._client_keeps_up)
        self._reserved_bytes += size
        self._spare_bytes += size

    def release(self) -> None:
        """Release all reserved bytes: the response is made, or holds no records for now."""
        if self._reserved_bytes:
            self._unsent.release(self._reserved_bytes)
            self._reserved_bytes = self._spare_bytes = 0
