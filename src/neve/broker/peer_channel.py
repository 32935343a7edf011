"""One connection as another broker uses it: its handshake, and the frames after it.

A message that is not authentic ends the session, and the next one needs another handshake. A client
that guesses thus has one attempt per handshake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.cluster.peer_auth import PeerAuthentication, PeerAuthenticationError, Session

if TYPE_CHECKING:
    from neve.protocol.peers.handshake import HandshakeRequest
    from neve.store.port import Buffer

PEER_REQUEST_BYTES_MAX = 64 * 1024
"""Larger than any message that a broker sends to another one."""


class PeerChannel:
    """The session of one connection, once another broker has begun one."""

    __slots__ = ("_session", "sender")

    def __init__(self) -> None:
        self._session: Session | None = None
        self.sender = -1  # the incarnation of the broker at the other end

    async def begin(
        self, authentication: PeerAuthentication, request: HandshakeRequest, nonce: bytes
    ) -> None:
        """Begin a session with the sender of a handshake, which gets `nonce` in the response.

        Raises PeerAuthenticationError if it is not live.
        """
        self._session = None
        self._session = await authentication.session_of(request.sender, request.nonce, nonce)
        self.sender = request.sender

    def open(self, frame: memoryview) -> memoryview:
        """Return a request without its MAC. Raises PeerAuthenticationError if it is not authentic.

        `frame` is the whole frame without its length.
        """
        session, self._session = self._session, None
        if session is None:
            raise PeerAuthenticationError("no session", "a message of a broker has no session")
        if len(frame) > PEER_REQUEST_BYTES_MAX:
            raise PeerAuthenticationError(
                "too large", f"a message of a broker has {len(frame)} bytes"
            )
        content = session.open_request(frame)
        self._session = session
        return content

    def seal(self, parts: list[Buffer]) -> list[Buffer]:
        """Return the frame of the response to the request that was opened last, with its MAC."""
        assert self._session is not None  # it lasts until the next request
        return [self._session.seal_response(b"".join(parts))]
