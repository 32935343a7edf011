"""Addresses a broker listens on and tells its clients: parsing them, and why one cannot be had."""

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
    """An address cannot be listened on. The message says which, why, and what to do."""


class Address(NamedTuple):
    """A host and a port. As text it is what a person would type."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(setting: str, text: str) -> Address:
    """`host:port` or `[v6]:port`; InvalidError names the setting it was given by."""
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidError(f"{setting} = {text!r}: put an IPv6 address in brackets: [::1]:9092")
    if not separator or not port.isascii() or not port.isdigit() or any(map(str.isspace, host)):
        raise InvalidError(f"{setting} = {text!r} is not host:port, such as 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise InvalidError(f"{setting} = {text!r}: ports end at {PORT_MAX}")
    return Address(host, int(port))


def advertised_address(
    advertise: str, bound: Address, host_name: Callable[[], str] = socket.gethostname
) -> Address:
    """What clients are told: as set, or where we listen, or this machine if that is everywhere."""
    if not advertise.strip():
        return Address(host_name(), bound.port) if bound.host in ANY_HOSTS else bound
    given = parse_address("broker.advertise", advertise)
    if given.host in ANY_HOSTS:
        raise InvalidError(
            f"broker.advertise = {advertise!r}: clients cannot connect to every address, name one"
        )
    # Port 0 was chosen by the system when we bound it.
    return given if given.port else Address(given.host, bound.port)


def refused(setting: str, address: Address, error: OSError) -> ListenError:
    """Why an address could not be listened on, for a person."""
    if error.errno == errno.EADDRINUSE:
        reason = "another process has this port: stop it, or choose another"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = "this port needs privileges: choose one above 1023"
    elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine has no such address"
    else:
        reason = os.strerror(error.errno) if error.errno else str(error)
    return ListenError(f"cannot listen on {address} ({setting}): {reason}")


def bind(setting: str, address: Address) -> socket.socket:
    """A socket bound to an address, not listening yet; ListenError where it cannot be had."""
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
        # A port that was served a moment ago may be taken again at once.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(where)
    except OSError as error:
        bound.close()
        raise refused(setting, address, error) from error
    return bound


def address_of(bound: socket.socket, asked: Address) -> Address:
    """Where a bound socket is: the host as it was asked for, and the port it really has."""
    return Address(asked.host, bound.getsockname()[1])
