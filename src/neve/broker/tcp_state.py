"""What the kernel knows about the peer of a connection. Only Linux reports it."""

from __future__ import annotations

import asyncio
import socket
import struct

_TCP_INFO = getattr(socket, "TCP_INFO", None)
# From the kernel's struct tcp_info and tcp_states.h.
_INFO_BYTES = 148
_COUNT = struct.Struct("=I")
_IN_FLIGHT_AT = 24  # packets
_UNSENT_AT = 144  # bytes
_CLOSE, _CLOSE_WAIT = 7, 8


def has_unacknowledged_bytes(transport: asyncio.Transport) -> bool:
    """Return whether the peer has not acknowledged everything; False if that is not known."""
    info = _tcp_info(transport)
    if len(info) < _INFO_BYTES:
        return False
    return any(_COUNT.unpack_from(info, at) != (0,) for at in (_IN_FLIGHT_AT, _UNSENT_AT))


def is_gone(transport: asyncio.Transport) -> bool:
    """Return whether the peer has closed its end. A transport notices that only while it reads."""
    return _tcp_info(transport)[:1] in (bytes([_CLOSE]), bytes([_CLOSE_WAIT]))


def _tcp_info(transport: asyncio.Transport) -> bytes:
    """Return the start of the kernel's report, or nothing."""
    link = transport.get_extra_info("socket")
    if link is None or _TCP_INFO is None:
        return b""
    try:
        info: bytes = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
    except (OSError, ValueError):
        return b""
    return info
