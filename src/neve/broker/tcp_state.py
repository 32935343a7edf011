"""What the kernel knows about the peer of a connection. Only Linux reports it."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

_OUTGOING_QUEUE = getattr(termios, "TIOCOUTQ", None)
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_CLOSE, _CLOSE_WAIT = 7, 8  # from the kernel's tcp_states.h


def unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Return how many sent bytes the peer has not acknowledged; 0 if that is not known."""
    link = transport.get_extra_info("socket")
    if link is None or _OUTGOING_QUEUE is None:
        return 0
    try:
        packed = fcntl.ioctl(link.fileno(), _OUTGOING_QUEUE, bytes(4))
    except (OSError, ValueError):
        return 0
    return int(struct.unpack("i", packed)[0])


def is_gone(transport: asyncio.Transport) -> bool:
    """Return whether the peer has closed its end. A transport notices that only while it reads."""
    link = transport.get_extra_info("socket")
    if link is None or _TCP_INFO is None:
        return False
    try:
        state = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
    except (OSError, ValueError, IndexError):
        return False
    return state in (_CLOSE, _CLOSE_WAIT)
