"""Handshake: a broker opens a connection to another one, and both choose a nonce for it."""

from __future__ import annotations

from neve.protocol.compiler import define

HANDSHAKE = define(
    """
    Handshake 30003, versions 0-0, flexible none
    request
      cluster_id string
      sender int64  # the incarnation that opens the connection
      target int64  # the incarnation that it means
      nonce bytes
    response
      error_code int16
      nonce bytes
    """
)
HandshakeRequest = HANDSHAKE.Request
HandshakeResponse = HANDSHAKE.Response
