"""What is on its way to a client: collected, sent in large writes, held back while it is slow."""

from __future__ import annotations

from neve.lake.pgwire.link import Link

_CORKED_BYTES = 64 * 1024


class Outbox:
    """Messages are added, and leave at a flush or when enough have come together."""

    def __init__(self, link: Link, stall_seconds: float) -> None:
        self._link = link
        self._stall_seconds = stall_seconds
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, message: bytes) -> None:
        self._parts.append(message)
        self._bytes += len(message)

    async def relieve(self) -> None:
        """Send if much has come together."""
        if self._bytes >= _CORKED_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if self._parts:
            parts, self._parts, self._bytes = self._parts, [], 0
            self._link.write(b"".join(parts))
        await self._link.drain(self._stall_seconds)
