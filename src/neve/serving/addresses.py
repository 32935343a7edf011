"""Addresses that a process listens on and advertises: parsing, binding, and binding errors."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from neve.errors import InvalidError, NeveError

PORT_MAX = 65_535
ANY_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104 (recognised, not bound)


class ListenError(NeveError):
    """The process cannot listen on an address. The message says which, why, and what to do."""


class Address(NamedTuple):
    """A host and a port. `str` gives `host:port`, or `[host]:port` for IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(setting: str, text: str) -> Address:
    """Parse `host:port` or `[v6]:port`. Raises InvalidError, which names the setting."""
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidError(f"{setting} = {text!r}: put an IPv6 address in brackets: [::1]:9092")
    if not separator or not port.isascii() or not port.isdigit() or any(map(str.isspace, host)):
        raise InvalidError(f"{setting} = {text!r} is not host:port, such as 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise InvalidError(f"{setting} = {text!r}: the port must be from 0 to {PORT_MAX}")
    return Address(host, int(port))


def advertised_address(
    advertise: str, bound: Address, host_name: Callable[[], str] = socket.gethostname
) -> Address:
    """Return the address for clients: the setting, or else where the broker listens.

    If the broker listens on all addresses, this is the machine's host name.
    """
    if not advertise.strip():
        return Address(host_name(), bound.port) if bound.host in ANY_HOSTS else bound
    given = parse_address("broker.advertise", advertise)
    if given.host in ANY_HOSTS:
        raise InvalidError(
            f"broker.advertise = {advertise!r}: clients cannot connect to a wildcard address; "
            "use a host name or an IP address"
        )
    # Port 0: the system chose the port when the socket was bound.
    return given if given.port else Address(given.host, bound.port)


def refused(setting: str, address: Address, error: OSError) -> ListenError:
    """Return the error for an address that could not be bound."""
    if error.errno == errno.EADDRINUSE:
        reason = "the port is in use: stop the other process, or choose another port"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = "the port needs privileges: choose one above 1023"
    elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine does not have this address: use one of its own"
    else:
        reason = os.strerror(error.errno) if error.errno else str(error)
    return ListenError(f"cannot listen on {address} ({setting}): {reason}")


def bind(setting: str, address: Address) -> socket.socket:
    """Return a socket bound to the address, not yet listening. Raises ListenError."""
    try:
        found = socket.getaddrinfo(
            address.host or None,
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        family, kind, protocol, _, where = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise refused(setting, address, error) from error
    try:
        # Allows a restart while connections of the previous process are in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(where)
    except OSError as error:
        bound.close()
        raise refused(setting, address, error) from error
    return bound


def address_of(bound: socket.socket, asked: Address) -> Address:
    """Return the address of a bound socket: the requested host and the actual port."""
    return Address(asked.host, bound.getsockname()[1])
