"""What the system knows of a connection's other end. On Linux; elsewhere nothing is known."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

_OUTGOING_QUEUE = getattr(termios, "TIOCOUTQ", None)
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_CLOSE, _CLOSE_WAIT = 7, 8  # of the kernel's tcp_states.h


def queued_bytes(transport: asyncio.Transport) -> int:
    """What the peer has yet to acknowledge of what was sent; 0 where that is not known."""
    link = transport.get_extra_info("socket")
    if link is None or _OUTGOING_QUEUE is None:
        return 0
    try:
        answer = fcntl.ioctl(link.fileno(), _OUTGOING_QUEUE, bytes(4))
    except (OSError, ValueError):
        return 0
    return int(struct.unpack("i", answer)[0])


def is_gone(transport: asyncio.Transport) -> bool:
    """Whether the peer has closed its end: a connection that is not read does not notice."""
    link = transport.get_extra_info("socket")
    if link is None or _TCP_INFO is None:
        return False
    try:
        state = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
    except (OSError, ValueError, IndexError):
        return False
    return state in (_CLOSE, _CLOSE_WAIT)
